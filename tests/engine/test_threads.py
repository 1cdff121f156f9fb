"""Several threads over one LLM: each has its own answer, whoever computes it; closing ends them all with one error."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drut import LLM, AnswerError, AsyncEngine, SamplingParams
from drut.engine.step.turn import CallTurn
from drut.errors import DrutError
from tests.engine.models import said, write_bytes_model

PROMPTS = ["hello", "a", "the quick brown fox", "twice"]
PARAMS = [SamplingParams(max_tokens=30, ignore_eos=True, temperature=0),
          SamplingParams(max_tokens=20, temperature=1.0, seed=7, ignore_eos=True, n=2, logprobs=1)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bytes_model(tmp_path_factory.mktemp("threads"))


@pytest.fixture(scope="module", params=[True, False], ids=["overlap", "plain"])
def llm(request: pytest.FixtureRequest, path: Path) -> Iterator[LLM]:
    with LLM(path, threads=1, overlap=request.param, debug_kv=True) as made:
        yield made
        made.engine.check_idle()
        assert not made.engine.busy


def each_in_a_thread(*calls: Callable[[], object]) -> list[object]:
    """Results of `calls`, which all begin at once."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result(60) for future in [pool.submit(run, call) for call in calls]]


@pytest.mark.parametrize("params", PARAMS, ids=["greedy", "choices"])
def test_four_threads_get_what_one_gets(llm: LLM, params: SamplingParams) -> None:
    alone = [[said(c) for c in llm.generate(p, params)] for p in PROMPTS]

    def call(prompt: str) -> Callable[[], object]:
        return lambda: [[said(c) for c in llm.generate(prompt, params)] for _ in range(3)]

    assert each_in_a_thread(*(call(p) for p in PROMPTS)) == [[own] * 3 for own in alone]
    same = each_in_a_thread(*[call(PROMPTS[0])] * 4)
    assert same == [[alone[0]] * 3] * 4


def test_streams_and_whole_answers_of_several_threads(llm: LLM) -> None:
    params = PARAMS[0]
    whole = [llm.generate(p, params)[0].text for p in PROMPTS]

    def streamed(prompt: str) -> Callable[[], object]:
        return lambda: "".join(chunk.text for chunk in llm.stream(prompt, params))

    def asked(prompt: str) -> Callable[[], object]:
        return lambda: llm.generate(prompt, params)[0].text

    assert each_in_a_thread(*(streamed(p) for p in PROMPTS)) == whole
    assert each_in_a_thread(streamed(PROMPTS[0]), asked(PROMPTS[1]), streamed(PROMPTS[2]), asked(PROMPTS[3])) == whole


def test_a_stream_that_is_held_open_keeps_no_thread_waiting(llm: LLM) -> None:
    params = PARAMS[0]
    whole = [llm.generate(p, params)[0].text for p in PROMPTS[:2]]
    held = llm.stream(PROMPTS[0], params)
    first = next(held).text
    assert each_in_a_thread(lambda: llm.generate(PROMPTS[1], params)[0].text) == [whole[1]]
    assert first + "".join(chunk.text for chunk in held) == whole[0]


def test_a_stream_may_be_dropped_while_another_thread_has_the_engine(llm: LLM) -> None:
    held = llm.stream(PROMPTS[0], SamplingParams(max_tokens=200, ignore_eos=True, temperature=0))
    next(held)
    with llm._turn:  # as in the midst of another thread's step
        held.close()
        assert llm.engine.busy
    assert len(llm.generate(PROMPTS[1], PARAMS[0])) == 1
    assert not llm.engine.busy


@pytest.mark.slow
def test_a_stream_may_be_collected_in_the_midst_of_its_own_threads_step(
        llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [llm.stream(PROMPTS[0], SamplingParams(max_tokens=200, ignore_eos=True, temperature=0))]
    next(streams[0])
    step = llm.engine.step

    def collecting() -> object:
        streams.clear()
        gc.collect()
        return step()

    monkeypatch.setattr(llm.engine, "step", collecting)
    assert len(llm.generate(PROMPTS[1], PARAMS[0])[0].token_ids) == 30
    assert not llm.engine.busy


def test_a_failed_step_fails_the_calls_in_it_and_no_later_one(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = llm.generate(PROMPTS[0], PARAMS[0])[0].text
    launch, left = llm.engine.runner.launch, [3]

    def failing(work: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise ValueError("a broken step")
        return launch(work)  # type: ignore[arg-type]

    monkeypatch.setattr(llm.engine.runner, "launch", failing)
    with pytest.raises(AnswerError, match="a broken step"):
        llm.generate(PROMPTS[0], PARAMS[0])
    assert llm.generate(PROMPTS[0], PARAMS[0])[0].text == wanted


@pytest.mark.parametrize("overlap", [True, False])
def test_closing_ends_calls_of_other_threads_with_one_error(path: Path, overlap: bool) -> None:
    llm = LLM(path, threads=1, overlap=overlap)
    held = llm.stream("held", SamplingParams(max_tokens=50, ignore_eos=True, temperature=0))
    next(held)
    begun = threading.Event()

    def endless() -> str:
        try:
            for _ in range(1_000_000):
                llm.generate("again", SamplingParams(max_tokens=50, ignore_eos=True, temperature=0))
                begun.set()
        except DrutError as error:
            return str(error)
        return "it never ended"

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(endless) for _ in range(2)]
        assert begun.wait(60)
        llm.close()
        assert [call.result(60) for call in calls] == ["the model was closed"] * 2
    with pytest.raises(DrutError, match="the model was closed"):
        list(held)
    for call in (lambda: llm.generate("x"), lambda: llm.logits([1]), lambda: next(llm.stream("x"))):
        with pytest.raises(DrutError, match="the model was closed"):
            call()
    llm.close()


def test_turns_are_taken_in_the_order_of_asking() -> None:
    turn, order = CallTurn(), list[int]()

    def take(number: int) -> None:
        with turn:
            order.append(number)

    threads = [threading.Thread(target=take, args=(i,)) for i in range(6)]
    with turn:
        assert not turn.try_enter()
        for i, thread in enumerate(threads, 1):
            thread.start()
            while len(turn._queue) < i:
                pass
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2, 3, 4, 5]
    assert turn.try_enter()
    turn.leave()


def test_an_engine_that_was_not_started_says_what_to_do(path: Path) -> None:
    engine = AsyncEngine(path, threads=1)
    for call in (lambda: engine.generate("hi"), lambda: engine.ready,
                 lambda: engine.open("hi", SamplingParams(temperature=0), lambda _: None)):
        with pytest.raises(DrutError, match="async with"):
            call()
    with pytest.raises(DrutError, match="async with"):
        asyncio.run(engine.stats())
