"""Several decoding steps in one call: tokens leave while it runs, and it ends where the host is needed."""

from __future__ import annotations

import threading

import pytest

from drut.engine.engine import Engine
from drut.engine.request.params import FilledParams
from drut.engine.request.request import Request
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.pending import Pending
from tests.engine.testbed import (
    FakeExecutable,
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


class Gate:
    """Lets the executable's steps through one by one, and counts launches."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launches: list[int] = []
        self.open_at_launch: int | None = None
        self._permits, self._open = threading.Semaphore(0), False
        executable, launch = engine.runner.executable, engine.runner.launch
        assert isinstance(executable, FakeExecutable)
        run = executable.launch

        def gated(descriptor: StepDescriptor, host: object = None) -> Pending:
            if not self._open:
                assert self._permits.acquire(timeout=10)
            return run(descriptor)

        def counted(work):
            self.launches.append(1 + work[0].ahead)
            if len(self.launches) == self.open_at_launch:
                self.open()
            return launch(work)

        monkeypatch.setattr(executable, "launch", gated)
        monkeypatch.setattr(engine.runner, "launch", counted)

    def let(self, steps: int) -> None:
        for _ in range(steps):
            self._permits.release()

    def open(self) -> None:
        self._open = True
        self._permits.release()


def decoding(engine: Engine, **params: object) -> Request:
    """A request of 4 prompt tokens; its prompt was launched, and nothing else."""
    request = submit(engine, text(0, 4), **{"max_tokens": 40, **params})
    engine.step()
    return request


def test_tokens_leave_while_the_burst_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(overlap=True, burst=10)
    gate = Gate(engine, monkeypatch)
    request = decoding(engine)
    gate.let(1)
    engine.step()  # launches the burst, brings the prompt's token
    assert gate.launches == [1, 10]
    for n in range(1, 6):
        gate.let(1)
        while len(request.output_ids) < 1 + n:
            engine.step()
    assert gate.launches == [1, 10], "and nothing else was launched for them"
    gate.open()
    finish_all(engine)
    check_answer(engine, request)
    engine.close()


def test_the_next_burst_is_launched_behind_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once nothing but the last step is left, how many there were is certain."""
    engine = make_engine(overlap=True, burst=4)
    gate = Gate(engine, monkeypatch)
    request = decoding(engine)
    gate.open_at_launch = 3
    gate.let(4)  # the prompt and three of four steps: without a launch nothing else runs
    finish_all(engine)
    assert gate.launches[:3] == [1, 4, 4]
    check_answer(engine, request)
    engine.close()


def test_an_arrival_ends_it_after_the_step_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(overlap=True, burst=32)
    gate = Gate(engine, monkeypatch)
    request = decoding(engine)
    gate.let(3)
    while len(request.output_ids) < 3:
        engine.step()
    other = submit(engine, text(1, 4))
    gate.let(1)
    while len(gate.launches) == 2:
        engine.step()
    assert len(request.output_ids) == 4, "one step more"
    gate.open()
    while other.first_token_at is None:
        engine.step()
    finish_all(engine)
    for r in (request, other):
        check_answer(engine, r)
    check_idle(engine)
    engine.close()


@pytest.mark.parametrize("how", ["abort", "stop"])
def test_a_request_that_goes_ends_it(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    engine = make_engine(overlap=True, burst=32)
    gate = Gate(engine, monkeypatch)
    request, other = submit(engine, text(0, 4), max_tokens=40), submit(engine, text(1, 4), max_tokens=40)
    engine.step()
    gate.let(3)
    while len(request.output_ids) < 3:
        engine.step()
    engine.finish(request, how)
    gate.let(1)
    while len(gate.launches) == 2:
        engine.step()
    assert len(other.output_ids) == 4
    gate.open()
    finish_all(engine)
    check_answer(engine, other)
    assert len(request.output_ids) == 3
    check_idle(engine)
    engine.close()


def test_the_end_of_a_sequence_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = text(0, 4)
    tokens = expected(prompt, FilledParams(max_tokens=30, ignore_eos=True, temperature=0), 1, 0, 1000).tokens
    at = next(i for i in range(4, 30) if tokens[i] not in tokens[:i])
    engine = make_engine(overlap=True, burst=64)
    gate = Gate(engine, monkeypatch)
    gate.open()
    request = submit(engine, prompt, max_tokens=60, stop_token_ids=(tokens[at],))
    other = submit(engine, text(1, 4), max_tokens=60)
    finish_all(engine)
    assert request.output_ids == tokens[: at + 1]
    assert request.why.steps == at + 1, "no step after it computed a row of it"
    check_answer(engine, other)
    executable = engine.runner.executable
    assert isinstance(executable, FakeExecutable)
    assert executable.steps == 60
    check_idle(engine)
    engine.close()


def test_it_reaches_as_far_as_there_are_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(overlap=True, burst=1000, pages=3, context=3 * PAGE_TOKENS)
    gate = Gate(engine, monkeypatch)
    gate.open()
    request = submit(engine, text(0, 4), max_tokens=3 * PAGE_TOKENS - 4)
    finish_all(engine)
    assert gate.launches == [1, 3 * PAGE_TOKENS - 5], "to its limit"
    check_answer(engine, request)

    first, second = (submit(engine, text(i, 4), max_tokens=2 * PAGE_TOKENS) for i in (1, 2))
    finish_all(engine)
    for r in (first, second):
        check_answer(engine, r)
    assert engine.preemptions == 1, "three pages for two who need three each in the end"
    check_idle(engine)
    engine.close()


@pytest.mark.parametrize("params", [{"frequency_penalty": 0.5}, {"repetition_penalty": 1.2}])
def test_none_where_the_host_must_know_each_token(monkeypatch: pytest.MonkeyPatch, params: dict[str, float]) -> None:
    engine = make_engine(overlap=True, burst=16)
    gate = Gate(engine, monkeypatch)
    gate.open()
    request, other = submit(engine, text(0, 4), max_tokens=9, **params), submit(engine, text(1, 4), max_tokens=9)
    finish_all(engine)
    assert set(gate.launches) == {1}
    for r in (request, other):
        check_answer(engine, r)
    engine.close()


def test_it_ends_where_the_edits_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `min_tokens`, ends are held back in the first ten tokens and not in the eleventh."""
    engine = make_engine(overlap=True, burst=100)
    gate = Gate(engine, monkeypatch)
    gate.open()
    request = submit(engine, text(0, 4), max_tokens=30, min_tokens=10, ignore_eos=False)
    finish_all(engine)
    assert gate.launches[:3] == [1, 9, 20]
    check_answer(engine, request)
    engine.close()


def test_a_step_of_it_that_fails_is_told_and_the_engine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(overlap=True, burst=16)
    executable = engine.runner.executable
    assert isinstance(executable, FakeExecutable)
    run, left = executable.launch, iter(range(5))

    def failing(descriptor: StepDescriptor, host: object = None) -> Pending:
        if next(left, None) is None:
            raise OSError("the machine is on fire")
        return run(descriptor)

    monkeypatch.setattr(executable, "launch", failing)
    request, log = submit(engine, text(0, 4), max_tokens=30), make_log()
    with pytest.raises(OSError, match="on fire"):
        finish_all(engine, log)
    said = log[request].tokens
    assert said == expected(text(0, 4), request.params, 1, 0, 1000).tokens[: len(said)]
    engine.abort(request)
    engine.drain()
    monkeypatch.setattr(executable, "launch", run)
    again = submit(engine, text(0, 4), max_tokens=30)
    finish_all(engine)
    check_answer(engine, again)
    check_idle(engine)
    engine.close()


def test_without_overlap_its_tokens_come_together() -> None:
    engine = make_engine(overlap=False, burst=8)
    request, log = submit(engine, text(0, 4), max_tokens=9), make_log()
    assert [len(step(engine, log)) for _ in range(2)] == [1, 8]
    check_answer(engine, request, log[request])
    engine.close()
