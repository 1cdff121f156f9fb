"""An abort at any moment ends that request only, and leaves nothing behind."""

from __future__ import annotations

import pytest

from drut.engine.engine import Engine
from drut.engine.request.params import SamplingParams
from drut.engine.request.request import Request
from tests.engine.testbed import check_answer, check_idle, finish_all, make_engine

PARAMS = SamplingParams(max_tokens=12, seed=3, ignore_eos=True, temperature=0)
PROMPT = list(range(40))


def others(engine: Engine) -> list[Request]:
    """Company, one of it with the same prompt."""
    return [*engine.submit(PROMPT, PARAMS), *engine.submit([5] * 20, PARAMS)]


@pytest.mark.parametrize("canary", [False, True])
@pytest.mark.parametrize(("overlap", "burst"), [(False, 1), (True, 1), (True, 5)])
@pytest.mark.parametrize("steps", range(16))
def test_abort_after_any_number_of_steps(steps: int, overlap: bool, burst: int, canary: bool) -> None:
    """The prompt takes three steps, the answer twelve: waiting, in the prompt, decoding, in flight, finished."""
    engine = make_engine(tokens=16, pages=12, overlap=overlap, burst=burst, canary=canary)
    (request,) = engine.submit(PROMPT, PARAMS)
    company = others(engine)
    for _ in range(steps):
        engine.step()
    said, ended = list(request.output_ids), request.finish_reason
    engine.abort(request)
    assert request not in engine.scheduler.running
    assert request not in engine.scheduler.waiting
    assert not request.table.pages
    assert request.finish_reason == (ended or "abort")
    engine.check_idle()
    engine.abort(request)
    for update in engine.step():
        assert update.request is not request, "an ended request says nothing more"
    finish_all(engine)
    engine.abort(request)
    assert request.output_ids == said
    for other in company:
        check_answer(engine, other)
        assert other.finish_reason == "length"
    check_idle(engine)
    engine.close()


@pytest.mark.parametrize("overlap", [False, True])
def test_abort_while_preempted(overlap: bool) -> None:
    engine = make_engine(overlap=overlap, canary=True)
    (request,) = engine.submit(PROMPT, PARAMS)
    company = others(engine)
    for _ in range(5):
        engine.step()
    engine.scheduler.preempt(request)
    assert request in engine.scheduler.waiting
    engine.abort(request)
    assert request not in engine.scheduler.waiting
    finish_all(engine)
    for other in company:
        check_answer(engine, other)
    check_idle(engine)
    engine.close()


@pytest.mark.parametrize("overlap", [False, True])
def test_a_sequence_slot_is_reused_while_its_last_step_is_in_flight(overlap: bool) -> None:
    engine = make_engine(seqs=1, overlap=overlap, canary=True)
    (first,) = engine.submit(PROMPT[:3], PARAMS)
    (second,) = engine.submit(PROMPT[:5], PARAMS)
    for _ in range(4):
        engine.step()
    engine.abort(first)
    finish_all(engine)
    check_answer(engine, second)
    check_idle(engine)
    engine.close()


def test_closing_ends_what_is_open() -> None:
    engine = make_engine(overlap=True)
    requests = others(engine)
    for _ in range(4):
        engine.step()
    engine.close()
    assert [r.finish_reason for r in requests] == ["abort", "abort"]
    engine.check_idle()
