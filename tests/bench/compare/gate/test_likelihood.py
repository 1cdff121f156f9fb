"""Perplexity and divergence of texts that engines score over HTTP, in each form that they answer in."""

from __future__ import annotations

import math
from typing import Any

import pytest

from drut.bench.compare.gate.ask import Asker
from drut.bench.compare.gate.likelihood import ScoredText, likelihood, texts
from drut.bench.engines.engine import Launch
from tests.bench.scripted import Request, ScriptedServer

TEXT = " one two three"
TOKENS = [" one", " two", " three"]


def scores(*values: float, tokens: list[str] = TOKENS, top: list[dict[str, float]] | None = None) -> ScoredText:
    return ScoredText(tokens[-len(values):], list(values), top or [{}] * len(values))


def completion(tokens: list[str], values: list[float | None], drawn: int | None = 1, **more: Any) -> dict[str, Any]:
    usage = {} if drawn is None else {"usage": {"prompt_tokens": len(tokens), "completion_tokens": drawn}}
    return {"choices": [{"text": "".join(tokens), "logprobs": {"tokens": tokens, "token_logprobs": values, **more},
                         "finish_reason": "length"}], **usage}


def asked(answer: Any, status: int = 200, count: int = 1) -> tuple[list[ScoredText], list[Any]]:
    async def answers(request: Request) -> None:
        await request.json(answer, status)

    with ScriptedServer(answers) as server:
        launch = Launch(server.url, "m", body={"cache_prompt": False})
        return Asker(launch, True, 5.0).score([TEXT] * count), [request.body for request in server.requests]


def test_a_prompt_is_scored_by_a_completion_that_repeats_it() -> None:
    top = [None, {" two": -1.0, " to": -2.0}, None, {" four": -0.1}]
    found, bodies = asked(completion([*TOKENS, " four"], [None, -1.0, -3.0, -0.1], top_logprobs=top), count=2)
    assert found == [ScoredText([" two", " three"], [-1.0, -3.0], [{" two": -1.0, " to": -2.0}, {}])] * 2
    assert bodies == [{"model": "m", "prompt": TEXT, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 5,
                       "stream": False, "cache_prompt": False}] * 2


@pytest.mark.parametrize(("answer", "status"), [
    ({"error": "logprobs must be a boolean"}, 400),
    ({"choices": [{"text": " four", "logprobs": None}]}, 200),
    ({"choices": [{"text": " four"}]}, 200),
    ({"choices": []}, 200),
    (completion([" four"], [-0.1]), 200),  # echo was passed over
    ({"choices": [{"logprobs": {"content": [{"token": " four", "logprob": -0.1}]}}]}, 200),  # the form of chats
    (completion([*TOKENS, " four"], [None, None, None, None]), 200),
    (completion([*TOKENS, " four"], [None]), 200),
    (completion([TEXT, "a", "b", "c"], [-1.0] * 4, drawn=6), 200),  # more than there are
    ("nonsense", 200),
])
def test_an_engine_that_scores_no_prompt_is_asked_once(answer: Any, status: int) -> None:
    found, bodies = asked(answer, status, count=3)
    assert (found, len(bodies)) == ([], 1)


def test_perplexity_is_set_beside_the_reference_token_by_token() -> None:
    reference = [scores(-1.0, -2.0), scores(-3.0, -2.0)]
    assert likelihood(reference, reference).increase == 0.0
    own = likelihood([scores(-1.5, -2.0), scores(-3.0, -2.5)], reference)
    assert own.perplexity == pytest.approx(math.exp(9 / 4))
    assert own.increase == pytest.approx(math.exp(1 / 4) - 1)
    assert own.divergence is None  # without lists there is none
    assert own.tokens == 4
    assert likelihood([], reference) is None


def test_a_first_token_of_its_own_is_left_out() -> None:
    own = [scores(-9.0, *[-1.0] * 19, tokens=["<s>", *"abcdefghijklmnopqrs"])]
    reference = [scores(*[-1.0] * 19, tokens=[*"abcdefghijklmnopqrs"])]
    assert likelihood(own, reference).increase == 0.0


@pytest.mark.parametrize("reference", [[], [scores(-1.0, -2.0, tokens=[" tw", "o three"])]])
def test_other_tokens_cannot_be_compared(reference: list[ScoredText]) -> None:
    own = likelihood([scores(-1.0, -2.0)], reference)
    assert own.perplexity == pytest.approx(math.exp(1.5))
    assert (own.increase, own.divergence) == (None, None)


def divergence(own: dict[str, float], reference: dict[str, float]) -> float:
    def of(shares: dict[str, float]) -> list[ScoredText]:
        return [scores(-1.0, top=[{token: math.log(share) for token, share in shares.items()}])]

    found = likelihood(of(own), of(reference)).divergence
    assert found is not None
    return found


def test_divergence_is_that_of_the_likeliest_tokens_and_the_rest() -> None:
    assert divergence({"a": 0.5, "b": 0.3}, {"a": 0.5, "b": 0.3}) == pytest.approx(0.0)
    assert divergence({"a": 0.3, "b": 0.5}, {"a": 0.5, "b": 0.3}) == pytest.approx(0.2 * math.log(5 / 3))
    assert divergence({"a": 0.3}, {"a": 0.5}) == pytest.approx(0.5 * math.log(5 / 3) + 0.5 * math.log(5 / 7))
    # A token that is not listed is no likelier than the last that is: 0.2.
    assert divergence({"a": 0.6, "c": 0.2}, {"a": 0.6, "b": 0.3}) == pytest.approx(
        0.3 * math.log(0.3 / 0.2) + 0.1 * math.log(0.1 / 0.2), abs=1e-9)
    assert divergence({"x": 0.999}, {"a": 0.999}) >= 0.0


def test_the_texts_are_prose() -> None:
    assert len(set(texts(8))) == 8
    assert all(text.isascii() and len(text) > 100 for text in texts(8))
