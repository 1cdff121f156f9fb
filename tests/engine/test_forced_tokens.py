"""Forced tokens taken at once, against the plain way that draws each of them: the same answers in fewer steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drut import LLM, AnswerError, AsyncEngine, Completion, Constraint, SamplingParams
from drut.constrain import ReasoningSpec
from drut.engine.schedule.forced_tokens import forced_run
from tests.engine.chance import make_llm
from tests.engine.models import said, write_bytes_model

# Of bytes: what is not a digit here is forced, but for the spaces that JSON leaves open.
KEYS = Constraint.json_schema({
    "type": "object", "properties": {"temperature": {"type": "integer", "minimum": 0, "maximum": 99},
                                     "unit": {"const": "degrees of Celsius"}, "humidity": {"enum": ["high", "hollow"]}},
    "required": ["temperature", "unit", "humidity"], "additionalProperties": False})
FORM = Constraint.regex("no [0-9] of the [0-9]{2} in all( and [ab])?")
ENDING = Constraint.regex("[0-9] is where it ends")
SETTINGS: dict[str, Any] = {"max_tokens": 120, "temperature": 1.0}
# What may fall into the midst of a run: ends of all kinds, and what needs each token known before the next.
ASKS: dict[str, dict[str, Any]] = {
    "keys": {"constraint": KEYS}, "form": {"constraint": FORM}, "ending": {"constraint": ENDING},
    **{f"cut at {n}": {"constraint": FORM, "max_tokens": n} for n in (1, 2, 3, 4, 9, 12)},
    "limit at the end": {"constraint": ENDING, "max_tokens": 17},
    "penalties": {"constraint": FORM, "frequency_penalty": 0.5},
    "stop id": {"constraint": FORM, "stop_token_ids": (ord("h"),)},
    "stop string": {"constraint": FORM, "stop": ["the"]},
    "stop id later": {"constraint": FORM, "stop_token_ids": (ord("a"),), "min_tokens": 2},
    "min tokens": {"constraint": FORM, "min_tokens": 8}, "logprobs": {"constraint": FORM, "logprobs": 2},
    "n": {"constraint": KEYS, "n": 3}, "prompt logprobs": {"constraint": FORM, "prompt_logprobs": 1},
    "budget": {"constraint": FORM, "reasoning": ReasoningSpec("<t>", "/>", begun=True, budget=5, closing="\n/>\n")},
    "no reasoning": {"constraint": FORM, "reasoning": ReasoningSpec("<t>", "/>")}, "free": {}, "ignore eos": {
        "constraint": FORM, "ignore_eos": True}}
NAIVE: dict[str, Any] = {"threads": 1, "forced_tokens": False, "overlap": False, "execution": "eager", "max_seqs": 1,
                         "prefix_cache": False}
RUNS: dict[str, dict[str, Any]] = {
    "default": {}, "step by step": {"overlap": False}, "no bursts": {"multi_step": 1}, "whole": {"chunk_tokens": 0},
    "small": {"chunk_tokens": 2, "max_batch_tokens": 24, "max_seqs": 24}, "preempted": {"preempt": 0.2},
    "plain": {"forced_tokens": False}, "few pages": {"kv_cache_gb": 3e-5, "prefix_cache": False}}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("forced"))


def asked() -> tuple[list[str], list[SamplingParams]]:
    made = [SamplingParams(**{**SETTINGS, "seed": i, **ask}) for i, ask in enumerate(ASKS.values())]
    return [f"prompt {i} " * (i % 4 + 1) for i in range(len(made))], made


@pytest.fixture(scope="module")
def plain(path: Path) -> list[Completion]:
    """Each alone."""
    with LLM(path, **NAIVE) as llm:
        return [c for prompt, params in zip(*asked(), strict=True) for c in llm.generate([prompt], params)]


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1, debug_kv=True) as llm:
        yield llm


@pytest.mark.parametrize("run", RUNS)
def test_all_ways_give_the_same_bits(path: Path, plain: list[Completion], run: str) -> None:
    with make_llm(path, threads=1, debug_kv=True, **RUNS[run]) as llm:
        got = llm.generate(*asked())
        assert [said(c) for c in got] == [said(c) for c in plain]
        llm.engine.check_idle()


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_streams_through_an_engine_elsewhere_say_the_same(path: Path, plain: list[Completion], process: bool) -> None:
    async def main() -> list[Completion]:
        async with AsyncEngine(path, process=process, threads=1) as engine:
            answers = await asyncio.gather(*(one(engine, *ask) for ask in zip(*asked(), strict=True)))
            return [c for choices in answers for c in choices]

    async def one(engine: AsyncEngine, prompt: str, params: SamplingParams) -> list[Completion]:
        text, ids, ends = dict[int, str](), dict[int, list[int]](), list[Completion]()
        async for chunk in engine.generate(prompt, params):
            text[chunk.index] = text.get(chunk.index, "") + chunk.text
            ids.setdefault(chunk.index, []).extend(chunk.token_ids)
            if chunk.completion is not None:
                assert (chunk.completion.text, chunk.completion.token_ids) == (text[chunk.index], ids[chunk.index])
                ends.append(chunk.completion)
        return sorted(ends, key=lambda c: c.index)

    assert [said(c) for c in asyncio.run(asyncio.wait_for(main(), 300))] == [said(c) for c in plain]


def test_a_run_is_one_chunk(path: Path) -> None:
    """Step by step: the prompt, then what is drawn, with all that is forced behind it."""
    params = SamplingParams(**SETTINGS, seed=1, constraint=ENDING)
    steps = []
    for forced in (True, False):
        with LLM(path, threads=1, overlap=False, forced_tokens=forced) as llm:
            answer = llm.generate(["hello"], params)[0]
            assert (answer.text[1:], answer.finish_reason) == (" is where it ends", "stop")
            steps.append(answer.why.steps)
    assert steps == [1, 18]


def test_with_a_step_in_flight_it_is_one_more(path: Path) -> None:
    constraint = Constraint.regex("[0-9] forced text [0-9] and more of it [0-9]")
    params = SamplingParams(**SETTINGS, seed=1, constraint=constraint)
    with LLM(path, threads=1, multi_step=1) as llm:
        answer = llm.generate(["hello"], params)[0]
    assert answer.completion_tokens == 32
    assert answer.why.steps <= 3 + 2 + 1  # the digits; a row each that was drawn before it was known; one in vain


def test_the_length_is_that_of_the_limit(llm: LLM) -> None:
    answer = llm.generate(["hello"], SamplingParams(**{**SETTINGS, "max_tokens": 7}, constraint=ENDING))[0]
    assert (answer.text[1:], answer.finish_reason, answer.completion_tokens) == (" is wh", "length", 7)


def test_an_end_that_is_held_back_fails_either_way(llm: LLM, path: Path) -> None:
    """The grammar wants it and `min_tokens` does not: nothing can be drawn."""
    params = SamplingParams(**SETTINGS, constraint=ENDING, stop_token_ids=(ord("w"),), min_tokens=10)
    with LLM(path, **NAIVE) as naive:
        for asked in (llm, naive):
            with pytest.raises(AnswerError, match="min_tokens") as error:
                asked.generate(["hello"], params)
            assert error.value.completions[0].text[1:] == " is "


def test_an_answer_that_is_aborted_in_a_run(llm: LLM) -> None:
    stream = llm.stream("hello", SamplingParams(**SETTINGS, constraint=KEYS))
    seen = 0
    while seen < 3:
        seen += len(next(stream).token_ids)
    stream.close()
    llm.engine.drain()
    llm.engine.check_idle()
    assert not llm.engine.busy


def test_a_long_text_is_taken_in_pieces(llm: LLM, path: Path) -> None:
    """No run is longer than what all others can wait for."""
    params = SamplingParams(max_tokens=600, temperature=0, seed=3,
                            constraint=Constraint.regex("[0-9](long text ){50}[0-9]"))
    with LLM(path, **NAIVE) as naive:
        assert said(llm.generate(["hello"], params)[0]) == said(naive.generate(["hello"], params)[0])


def test_none_is_forced_while_a_verification_is_in_flight(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many tokens it brings is unknown, and so is the place of the next one."""
    params = SamplingParams(max_tokens=9, temperature=0, constraint=Constraint.regex("abcd."))
    with LLM(path, threads=1, overlap=False, forced_tokens=False) as llm:
        (request,) = llm.engine.submit([1, 2], params)
        while not request.output_ids:
            llm.engine.step()
        assert forced_run(request) == tuple(b"bcd")
        monkeypatch.setattr(type(request.progress), "verifying", True)
        assert forced_run(request) == ()
