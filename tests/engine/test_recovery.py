"""Steps that raise: the requests in them end, the others say what they always say, and no page is lost."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.cache.pool import KvCorruptionError
from drut.engine.engine import Engine
from drut.engine.request.request import Request
from drut.engine.schedule.scheduler import SchedulerStallError
from drut.engine.service.stats import stats
from tests.engine.testbed import Log, check_answer, check_idle, make_engine, make_log, submit, take_down, text


class WheelError(Exception):
    """What the tests throw into a step."""


def break_at(engine: Engine, owner: Any, name: str, when: Callable[[], bool]) -> None:
    """`owner.name` raises instead of being called, or in the midst of it, whenever `when` says so."""
    real = getattr(owner, name)

    def broken(*args: Any, **kwargs: Any) -> Any:
        if when():
            raise WheelError("a wheel came off")
        return real(*args, **kwargs)

    setattr(owner, name, broken)


def step(engine: Engine, log: Log) -> list[Request]:
    """One step, with what the engine loop does when it raises; returns the requests lost."""
    lost: list[Request] = []
    try:
        updates = engine.step()
    except WheelError:
        updates, lost = engine.recover()
        assert lost
    take_down(updates, log)
    return lost


def in_flight(engine: Engine) -> set[Request]:
    return {w.request for w in engine._inflight.work} if engine._inflight else set()


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1 << 30), overlap=st.booleans(), burst=st.sampled_from([1, 4]), pages=st.sampled_from([12, 64]),
    where=st.sampled_from(["run", "launch", "schedule", "process"]), prefix_cache=st.booleans(),
    force=st.sampled_from([0.0, 0.0, 0.2]), chance=st.sampled_from([0.05, 0.3]))
@pytest.mark.slow
def test_random_failures_end_those_in_the_step_alone(seed, overlap, burst, pages, where, prefix_cache, force, chance):
    dice = random.Random(seed)
    engine = make_engine(pages=pages, seqs=4, overlap=overlap, burst=burst if overlap else 1, canary=True,
                         prefix_cache=prefix_cache, force_preempt=force, chunk=dice.choice([None, 0, 5]),
                         windows=dice.choice([(0,), (0, 20), (20,)]), window_pages=pages)
    owner, name = {"run": (engine.runner.executable, "launch"), "launch": (engine.runner, "launch"),
                   "schedule": (engine.scheduler, "_continue"), "process": (engine._acceptor, "_read")}[where]
    break_at(engine, owner, name, lambda: dice.random() < chance)
    base, log, requests, lost = text(seed, 60), make_log(), [], set()
    for _ in range(12):
        prompt = base[: dice.randrange(1, 60)] + text(dice.randrange(99), 2)
        requests.append(submit(engine, prompt, max_tokens=dice.randrange(1, 20), seed=dice.randrange(9),
                               prompt_logprobs=dice.choice([None, None, 1])))
        for _ in range(dice.randrange(3)):
            lost |= set(step(engine, log))
    for _ in range(5000):
        if not engine.busy:
            break
        lost |= set(step(engine, log))
    for request in requests:
        assert request.finish_reason in (("stop", "length", "error") if request in lost else ("stop", "length"))
        check_answer(engine, request, None if request in lost else log[request])
    check_idle(engine)


def test_who_is_only_in_the_step_launched_on_top_goes_on() -> None:
    engine, log = make_engine(overlap=True), make_log()
    one = submit(engine, text(1, 10), max_tokens=20)
    failing = iter([False, False, True])
    break_at(engine, engine.runner.executable, "launch", lambda: next(failing, False))
    step(engine, log)
    step(engine, log)
    step(engine, log)
    two = submit(engine, text(2, 10), max_tokens=20)  # joins the step that is launched on top of the failing one
    lost = []
    while engine.busy:
        lost += step(engine, log)
    assert lost == [one]
    assert one.finish_reason == "error"
    check_answer(engine, two, log[two])
    assert two.finish_reason == "length"
    assert stats(engine).failed_steps == 1
    check_idle(engine)


def test_a_scheduler_that_finds_nothing_to_do_loses_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    one, two = submit(engine, text(1, 10)), submit(engine, text(2, 10))
    with monkeypatch.context() as patched:
        patched.setattr(engine.scheduler, "_admit", lambda budget: None)
        with pytest.raises(SchedulerStallError):
            engine.step()
        assert engine.recover() == ([], [one])
    while engine.busy:
        engine.step()
    check_answer(engine, two)
    check_idle(engine)


def test_pages_that_no_longer_add_up_are_not_passed_over() -> None:
    engine = make_engine()
    request = submit(engine, text(1, 40), max_tokens=20)
    engine.step()
    engine.cache.pool.allocate()
    break_at(engine, engine.runner.executable, "launch", lambda: True)
    with pytest.raises(WheelError):
        engine.step()
    with pytest.raises(KvCorruptionError):
        engine.recover()
    assert request.finish_reason == "error"


def test_stats_count_what_happened() -> None:
    engine, log = make_engine(pages=12, seqs=2), make_log()
    for i in range(4):
        submit(engine, text(1, 33 + 4 * (i == 3)), max_tokens=3)
    step(engine, log)
    now = stats(engine)
    assert (now.pages, now.running, sum(now.waiting.values())) == (12, 2, 2)
    assert set(now.waiting) <= {"turn", "sequences"}
    assert now.pages - now.free_pages - now.cached_pages > 0
    while engine.busy:
        step(engine, log)
    end = stats(engine)
    assert end.free_pages + end.cached_pages == end.pages
    assert end.evictable_pages == end.cached_pages
    assert (end.running, end.waiting, end.failed_steps) == (0, {}, 0)
    assert end.queried_tokens == 33 * 3 + 37
    assert 0 < end.hit_tokens <= 32 * 3
    assert end.steps == sum(end.step_counts) == engine.runner.executable.steps
    assert end.rows == engine.runner.executable.rows
    assert end.step_seconds > 0
    assert len(end.step_counts) == len(end.step_bounds) + 1
    assert end.idle_s >= 0
