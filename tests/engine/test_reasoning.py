"""Reasoning: where it ends, and how its budget closes it whatever else the engine does meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut import LLM, SamplingParams
from drut.constrain.reasoning import ReasoningSpec, ReasoningState, ReasoningTracker
from drut.errors import RequestError
from tests.engine.chance import make_llm
from tests.engine.models import said, write_bytes_model
from tests.engine.testbed import (
    VOCAB,
    check_answer,
    check_idle,
    expected,
    finish_all,
    make_engine,
    make_log,
    step,
    submit,
    text,
)

MARKS = ReasoningSpec("<t>", "</t>", budget=6, closing=".</t>\n")


def follow(answer: bytes, cuts: list[int], reasoning: ReasoningSpec) -> ReasoningTracker:
    """A watch that was told `answer` in tokens that end at `cuts`."""
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    watch = ReasoningTracker(reasoning, [], [], lambda i: pieces[i])
    for i in range(len(pieces)):
        watch.push(i)
    return watch


@settings(deadline=None, max_examples=150)
@given(st.data(), st.booleans())
def test_marks_are_found_however_tokens_cut_them(data: st.DataObject, begun: bool) -> None:
    body = data.draw(st.text("<t>/ x", max_size=12)).encode()
    answer = data.draw(st.sampled_from([b"", b" \n"])) + (b"" if begun else b"<t>") + body
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    watch = follow(answer, cuts, replace(MARKS, begun=begun, budget=None))
    closed = body.find(b"</t>")
    assert watch.state is (ReasoningState.OPEN if closed < 0 else ReasoningState.OVER)
    end = len(answer) - len(body) + closed + 4 if closed >= 0 else len(answer)
    ends = [*cuts, len(answer)]
    assert watch.tokens == (len(ends) if closed < 0 else next(i for i, cut in enumerate(ends, 1) if cut >= end))


@pytest.mark.parametrize("answer", [b"Yes.", b"<b>", b" \n< t>", b"x<t>y</t>"])
def test_an_answer_may_begin_without_a_thought(answer: bytes) -> None:
    watch = follow(answer, list(range(1, len(answer))), MARKS)
    assert (watch.state, watch.tokens) == (ReasoningState.OVER, 0)
    assert all(watch.forced(i) is None for i in range(30))


@pytest.mark.parametrize(("settings", "state"), [
    ({}, ReasoningState.OPEN), ({"shown_special_ids": (257,)}, ReasoningState.OPEN),
    ({"shown_special_ids": (256,)}, ReasoningState.OVER),
    ({"skip_special_tokens": False}, ReasoningState.OVER)])
def test_tokens_that_the_text_leaves_out_do_not_begin_the_answer(alone: LLM, settings: dict[str, Any],
                                                                 state: ReasoningState) -> None:
    answer = alone.submit("hello", SamplingParams(temperature=0, reasoning=MARKS, **settings))[0]
    watch = answer.request.reasoning
    assert watch is not None
    for token in (256, *b"<t>"):  # <bos>
        watch.push(token)
    assert watch.state is state
    alone.engine.abort(answer.request)


def test_a_thought_must_be_one() -> None:
    for bad in ({"opens": ""}, {"closes": "x" * 300}, {"budget": -1}, {"budget": True}, {"closing": "no mark"}):
        with pytest.raises(RequestError, match=f"reasoning.{'closing' if bad.get('closing') else next(iter(bad))}"):
            replace(MARKS, **bad)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="reasoning must be"):
        SamplingParams(reasoning="</think>", temperature=0)  # type: ignore[arg-type]


def random_reasoning(dice: random.Random, first: str) -> ReasoningSpec:
    """Of letters that the testbed draws now and then; sometimes one that the answer opens itself."""
    closes = dice.choice("DKQ")
    return ReasoningSpec(first, closes, dice.random() < 0.6, dice.choice([None, 0, 1, 2, 5, 9, 20]),
                         dice.choice([closes, "A" + closes, closes + "BC", "EE" + closes + "F"]))


@pytest.mark.parametrize("seed", range(40))
def test_a_budget_closes_a_thought_under_any_schedule(seed: int) -> None:
    dice = random.Random(seed)
    engine = make_engine(pages=dice.choice([24, 64]), seqs=dice.choice([1, 3, 8]), overlap=dice.random() < 0.7,
                         burst=dice.choice([1, 4, 16]), force_preempt=dice.choice([0.0, 0.0, 0.2]), canary=True)
    log, requests = make_log(), []
    for i in range(8):
        prompt = text(seed * 100 + i, dice.randrange(1, 40))
        plain = SamplingParams(max_tokens=1, seed=i, ignore_eos=True, temperature=0)
        opening = chr(65 + expected(prompt, plain, i, 0, engine.room).tokens[0])
        penalty = dice.choice([0.0, 0.0, 0.5])
        reasoning = random_reasoning(dice, opening)
        if penalty and not reasoning.begun:
            reasoning = replace(reasoning, opens="~")
        requests.append(submit(engine, prompt, max_tokens=dice.randrange(1, 40), seed=i, reasoning=reasoning,
                               presence_penalty=penalty, min_tokens=dice.choice([0, 0, 1]),
                               logprobs=dice.choice([None, 1])))
        for _ in range(dice.randrange(4)):
            step(engine, log)
    finish_all(engine, log)
    for request in requests:
        check_answer(engine, request, log[request])
    check_idle(engine)


def test_a_forced_token_must_be_in_the_vocabulary() -> None:
    engine = make_engine()
    watch = ReasoningTracker(MARKS, [], [VOCAB], lambda i: b"x")
    with pytest.raises(RequestError, match=f"reasoning.closing: token id {VOCAB}"):
        engine.submit([1], SamplingParams(reasoning=MARKS, temperature=0), reasoning=watch)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("thought"))


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[LLM]:
    with LLM(path, max_seqs=1, chunk_tokens=0, prefix_cache=False, execution="eager", threads=1, overlap=False) as llm:
        yield llm


def asks() -> list[SamplingParams]:
    base = SamplingParams(max_tokens=30, temperature=1.0, seed=3, logprobs=2, ignore_eos=True)
    thoughts = [replace(MARKS, begun=True, budget=b) for b in (0, 3, 6, 40)] + [None, MARKS]
    return [replace(base, reasoning=t, n=n) for t in thoughts for n in (1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"overlap": False, "max_batch_tokens": 8},
                                 {"multi_step": 1, "preempt": 0.3}])
def test_bits_are_the_same_in_company(path: Path, alone: LLM, how: dict[str, object]) -> None:
    prompts = [f"prompt {i}" for i in range(len(asks()))]
    wanted = alone.generate(prompts, asks())
    with make_llm(path, threads=2, debug_kv=True, **how) as llm:
        got = llm.generate(prompts, asks())
    assert [(said(a), a.reasoning_tokens) for a in got] == [(said(a), a.reasoning_tokens) for a in wanted]
    assert {a.reasoning_tokens for a in got} == {None, 0, 5, 8, 11, 30}


def test_forced_tokens_have_the_models_logprobs(alone: LLM) -> None:
    params = SamplingParams(max_tokens=12, temperature=0, logprobs=0, ignore_eos=True,
                            reasoning=replace(MARKS, begun=True, budget=3))
    answer = alone.generate("hello", params)[0]
    assert answer.text[3:9] == MARKS.closing
    assert answer.logprobs is not None
    scored = alone.generate(alone._tokenizer().encode("hello") + answer.token_ids,
                            SamplingParams(max_tokens=1, prompt_logprobs=0, temperature=0))[0].prompt_logprobs
    assert scored is not None
    assert [e[i] for e, i in zip(scored[-12:], answer.token_ids, strict=True)] == [
        e[i] for e, i in zip(answer.logprobs, answer.token_ids, strict=True)]


def test_stop_strings_do_not_count_in_a_thought(alone: LLM) -> None:
    free = alone.generate("hello", SamplingParams(max_tokens=30, ignore_eos=True,
                                                  reasoning=replace(MARKS, begun=True, budget=8), temperature=0))[0]
    inside, at = free.text[2], free.text.index(MARKS.closing) + len(MARKS.closing)
    later = next(c for c in free.text[at:] if c not in MARKS.closing)
    answer = alone.generate("hello", SamplingParams(max_tokens=30, ignore_eos=True, stop=[inside, later],
                                                    reasoning=replace(MARKS, begun=True, budget=8), temperature=0))[0]
    assert answer.text == free.text[: min(free.text.find(c, at) for c in (inside, later) if c in free.text[at:])]
    assert answer.finish_reason == "stop"
