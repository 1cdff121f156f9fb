from __future__ import annotations

import json
import math
from dataclasses import replace

import msgspec
import pytest

from drut.bench.compare.gate import schemas
from drut.bench.compare.gate.agreement import Reference, agreement, read_reference
from drut.bench.compare.gate.ask import Asker, EngineAnswer, Question
from drut.bench.compare.gate.exam import LENGTH_TOKENS, Answers, Paper, examine, judge, worse
from drut.bench.compare.gate.likelihood import ScoredText
from drut.bench.compare.gate.schemas import questions, schema, valid_share
from drut.bench.engines.engine import Launch
from drut.bench.mock import MockServer
from drut.errors import RequestError
from tests.bench.scripted import Request, ScriptedServer

PAPER = Paper(full=True, prompts=2, tokens=8, texts=2, sums=4, sum_tokens=8, together=2, least_agreement=0.5,
              most_increase=0.25, most_divergence=0.25, most_sums_lost=0.1, least_valid=1.0, least_exact=1.0)
VALID = ['{"sky":"rain","celsius":-3,"windy":true}', '{"name":"M","born":1867,"field":"physics"}',
         '{"colours":["red","white"]}', '{"spam":true,"stars":null}', '{"code":"USD","units":3}']


def answer(text: str = "", tokens: int | None = None, status: int = 200, finish: str = "stop") -> EngineAnswer:
    return EngineAnswer(status, text, finish, 3, tokens)


def scored(likely: float = 0.5, tokens: str = "abcd") -> ScoredText:
    """Each token found so likely, and another one nearly all the rest."""
    value, other = math.log(likely), math.log(1 - likely) - 0.01
    return ScoredText(list(tokens), [value] * len(tokens), [{token: value, "z": other} for token in tokens])


def reference(text: str = "a b c d", scores: list[ScoredText] | None = None) -> Reference:
    scores = [scored()] * 2 if scores is None else scores
    return Reference(source="base", chat=True, max_tokens=8,
                     answers={question.text: text for question in PAPER.greedy()}, scores=scores, scores_of="base")


def answers(greedy: str = "a b c d", lengths: int | None = LENGTH_TOKENS, sums: str = "1111",
            structured: list[str] = VALID, scores: list[ScoredText] | None = None) -> Answers:
    return Answers([answer(greedy)] * 2, [answer(tokens=lengths)] * 4, [c == "1" for c in sums],
                   [answer(text) for text in structured], [scored()] * 2 if scores is None else scores)


def test_agreement_counts_tokens_up_to_the_first_that_differs() -> None:
    found = agreement(["a b c d", "a b", "", "x"], ["a b x d", "a b c", "", "x"], str.split)
    assert found.differs_at == [2, 2, None, None]
    assert found.share == pytest.approx((2 / 4 + 2 / 3 + 1 + 1) / 4)


def test_one_that_does_all_passes() -> None:
    gate = judge(PAPER, answers(), reference(), answers().sums, str.split)
    assert gate.passed
    assert (gate.agreement, gate.gsm8k, gate.schema_valid, gate.lengths_exact) == (1.0, 1.0, 1.0, 1.0)
    assert gate.asked == {"agreement": 2, "lengths_exact": 4, "gsm8k": 4, "schema_valid": 5, "scored_tokens": 8}
    assert (gate.perplexity, gate.perplexity_increase, gate.divergence) == (pytest.approx(2.0), 0.0, 0.0)
    assert gate.judged_on == ["perplexity", "divergence", "greedy answers", "lengths", "GSM8K", "schemas"]


@pytest.mark.parametrize(("own", "words"), [
    (answers(greedy="a x"), "for 25% of their tokens"),
    (answers(lengths=31), "0% of answers have exactly the requested tokens"),
    (answers(structured=[*VALID[:4], '{"code":"usd","units":3}']), "80% of its structured answers"),
    (answers(sums="00000000"), "it has 0 of 8 sums right, and the base 8"),
    (answers(scores=[msgspec.structs.replace(scored(), logprobs=[math.log(0.3)] * 4)] * 2),
     "its perplexity of 3.333 is 67% over the reference's, the maximum is 25%"),
    (answers(scores=[scored(0.9)] * 2), "its next tokens diverge from the reference's by 0.5"),
])
def test_each_failure_is_named(own: Answers, words: str) -> None:
    base = answers(sums="1" * len(own.sums))
    gate = judge(PAPER, own, reference(), base.sums, str.split)
    assert not gate.passed
    assert [words in reason for reason in gate.reasons] == [True]


def test_random_weights_are_reported_and_only_their_lengths_judged() -> None:
    paper = replace(PAPER, full=False)
    exact = Answers([answer("x y")] * 2, [answer(tokens=LENGTH_TOKENS)], [], [])
    gate = judge(paper, exact, reference("a"), [], str.split)
    assert gate.passed
    assert gate.agreement == 0.0
    short = Answers([answer("x")] * 2, [answer(tokens=3)], [], [])
    assert not judge(paper, short, reference("x"), [], str.split).passed


def test_an_engine_that_reports_no_token_counts_is_not_judged_by_them() -> None:
    gate = judge(PAPER, answers(lengths=None), reference(), [], str.split)
    assert gate.passed
    assert gate.lengths_exact is None


@pytest.mark.parametrize(("own", "base", "expected"), [
    ("0000", "1111", False),  # 1 in 16 by chance
    ("00000", "11111", True),
    ("11111", "00000", False),
    ("1" * 50 + "0" * 5, "1" * 55, False),  # surely fewer, but within what may be lost
    ("0000011111", "1111100000", False),
    ("", "", False),
])
def test_sums_are_worse_where_that_is_no_chance(own: str, base: str, expected: bool) -> None:
    assert worse([c == "1" for c in own], [c == "1" for c in base], 0.1) == expected


@pytest.mark.parametrize(("base", "judged"), [("", False), ("0" * 100, False), ("1" * 5 + "0" * 95, False),
                                              ("1" * 6 + "0" * 94, True)])
def test_gsm8k_is_judged_only_where_the_base_has_enough_right(base: str, judged: bool) -> None:
    """A model that guesses has as many right as a broken one."""
    gate = judge(replace(PAPER, most_sums_lost=0.01), answers(sums="0" * len(base)), reference(),
                 [c == "1" for c in base], str.split)
    assert gate.passed == (not judged)
    assert ("GSM8K" in gate.judged_on) == judged


def test_structured_answers() -> None:
    assert valid_share([answer(text) for text in VALID]) == (1.0, 5)
    assert valid_share([answer(status=400)] * 5) == (None, 0)
    assert valid_share([answer("Sure! Here you are.")] * 5) == (None, 0)
    assert valid_share([answer(text) for text in VALID[:4]] + [answer(status=400)]) == (0.8, 5)
    assert valid_share([answer(text) for text in VALID[:4]] + [answer("{ ", finish="length")]) == (1.0, 4)
    assert valid_share([answer(text) for text in VALID[:4]] + [answer('{"code":"USD","units":3,"more":1}')]) == (0.8, 5)
    assert valid_share([answer("{" * 90_000, finish="stop")] * 5) == (0.0, 5)


def test_schemas_are_whole_and_closed() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for (kind, _), text in zip(schemas._ASKED, VALID, strict=True):
        found = schema(kind)
        assert found["additionalProperties"] is False
        assert "$ref" not in json.dumps(found)
        jsonschema.validate(json.loads(text), found)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**json.loads(text), "more": 1}, found)
    assert len(questions()) == len(VALID)


def test_an_engine_is_asked_in_its_own_words() -> None:
    launch = Launch("http://h/v1", "m", exact={"logit_bias": {"2": -100}}, body={"cache_prompt": False})
    chat = Asker(launch, True, 1.0).body(Question("hi", 5, exact=True))
    assert chat == {"model": "m", "max_tokens": 5, "temperature": 0, "stream": False, "cache_prompt": False,
                    "logit_bias": {"2": -100}, "messages": [{"role": "user", "content": "hi"}]}
    plain = Asker(Launch("http://h", "m"), False, 1.0).body(Question("hi", 5, exact=True))
    assert (plain["prompt"], plain["min_tokens"], plain["ignore_eos"]) == ("hi", 5, True)


def test_all_of_it_against_a_server() -> None:
    with MockServer({"output_tokens": 8}) as server:
        own = examine(Asker(Launch(server.url, "mock"), True, 30.0), PAPER)
        bodies = server.requests()
    assert [s.text.strip() for s in own.greedy] == ["t0 t1 t2 t3 t4 t5 t6 t7"] * 2
    assert [s.tokens for s in own.lengths] == [LENGTH_TOKENS] * 4
    assert own.prompt_tokens
    assert len(bodies) == 2 + 4 + 4 + 5 + 1  # it scores no text, and is asked no second one
    assert own.scores == []
    gate = judge(PAPER, own, reference(own.greedy[0].text), own.sums, str.split)
    assert gate.passed
    assert gate.schema_valid is None
    assert gate.asked["schema_valid"] == 0
    assert gate.judged_on == ["greedy answers", "lengths"]  # no sum is right


def test_refusals_and_nonsense_are_one_line() -> None:
    async def refuse(request: Request) -> None:
        await request.json({"error": "no"}, 422)

    async def babble(request: Request) -> None:
        await request.json({"choices": []})

    async def abort(request: Request) -> None:
        await request.json({"choices": [{"message": {"content": "a"}, "finish_reason": "abort"}]})

    async def fail(request: Request) -> None:
        await request.json({"object": "error", "message": "engine died", "choices": [{}]})

    for handler, words in ((refuse, "it answered 422"), (babble, "an invalid reply"), (abort, "finish_reason 'abort'"),
                           (fail, "engine died")):
        with ScriptedServer(handler) as server, pytest.raises(RequestError, match=words):
            examine(Asker(Launch(server.url, "m"), True, 30.0), PAPER)
    with pytest.raises(RequestError, match="refused"):
        examine(Asker(Launch("http://127.0.0.1:9", "m"), True, 5.0), PAPER)


def test_a_reference_is_read_or_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "r.json"
    path.write_text('{"source": "s", "chat": true, "max_tokens": 8, "answers": {"q": "a"}}')
    assert read_reference(path) == Reference("s", True, 8, {"q": "a"})
    path.write_text("{}")
    with pytest.raises(RequestError, match="--reference"):
        read_reference(path)
    with pytest.raises(RequestError, match="--reference"):
        read_reference(tmp_path / "none.json")
