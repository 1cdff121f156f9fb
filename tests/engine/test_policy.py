"""Who goes first, who gives way, and for how long at most."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drut.engine.engine import Engine
from drut.engine.request.logits_processors import LogitsProcessors
from drut.engine.request.params import FilledParams
from drut.engine.request.progress import Progress
from drut.engine.request.request import Request
from drut.engine.schedule.policy import Aging, FirstCome, LeastServed, Policy
from drut.engine.schedule.reserve import Reserve
from drut.engine.schedule.work import StepLimits
from drut.plan.simulate import Arrival, Setup, Simulation
from tests.engine.testbed import check_answer, finish_all, make_engine, predicting, submit, text

CACHE = make_engine().cache


class Clock:
    """Seconds as told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def scripted(engine: Engine) -> Clock:
    engine.scheduler.policy.clock = clock = Clock()
    return clock


def arrive(engine: Engine, clock: Clock, prompt: list[int], **params: object) -> Request:
    request = submit(engine, prompt, **params)
    request.arrived = request.waits_since = clock.now
    return request


def plain(order: int, arrived: float, priority: int = 0, prompt: int = 8) -> Request:
    params = FilledParams(temperature=0)
    return Request(id=str(order), progress=Progress([0] * prompt), params=params, limit=1000, arrived=arrived,
                   order=order, edits=LogitsProcessors(params, (), ()), priority=priority)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1000), st.integers(-5, 5), st.integers(1, 4000)), min_size=2, max_size=20),
       st.floats(0.1, 100))
def test_aging_bounds_who_may_pass(asks: list[tuple[float, int, int]], aging_s: float) -> None:
    """Only those that come less than `aging_s` times the steps between them later; the victim is the last of all."""
    requests = [plain(i, at, priority, prompt) for i, (at, priority, prompt) in enumerate(sorted(asks))]
    policy = Aging(aging_s=aging_s)
    order = policy.order(requests, [], CACHE)
    for i, first in enumerate(order):
        for behind in order[i + 1 :]:
            steps = behind.priority - first.priority + (behind.prompt_tokens - first.prompt_tokens) / Aging.PROMPT
            assert first.arrived - behind.arrived <= aging_s * steps + 1e-6
    assert policy.victim(requests) is order[-1]


@pytest.mark.parametrize("policy", ["aging", "least-served"])
def test_waiting_wins_over_any_stream_of_better_ones(policy: str) -> None:
    """One of low priority, or long, beside two new ones a second for ever: it ends in a bounded time."""
    engine = make_engine(seqs=1, policy=policy, aging_s=10)
    clock = scripted(engine)
    old = arrive(engine, clock, text(0, 8), priority=3 if policy == "aging" else 0, max_tokens=300)
    for n in range(4000):
        if n % 4 == 0:
            arrive(engine, clock, text(n + 1, 3), max_tokens=4)
        engine.step()
        clock.now += 0.5
        if old.finish_reason:
            break
    assert old.finish_reason == "length"
    finish_all(engine)
    check_answer(engine, old)


def test_who_was_served_least_goes_first_and_levels_double() -> None:
    requests = [plain(i, 0.0) for i in range(5)]
    for request, made in zip(requests, (200, 63, 64, 0, 130), strict=True):
        request.progress.tokens += [0] * made
    order = LeastServed(Clock()).order(requests, [], CACHE)
    assert [r.order for r in order] == [1, 3, 2, 0, 4], "0 and 63 are of one level, 130 and 200 too"


def victims_for(request: Request, running: list[Request], expected: int) -> list[Request]:
    reserve = Reserve()
    for _ in range(100):
        reserve.lengths.add(expected, ended=True)
    return LeastServed(Clock()).victims_for(request, running, reserve)


def test_the_most_served_gives_way_if_that_is_worth_it() -> None:
    new, long, longer = plain(3, 0.0), plain(1, 0.0), plain(2, 0.0)
    long.limit = longer.limit = 10_000
    long.progress.tokens += [0] * 300
    longer.progress.tokens += [0] * 600
    assert victims_for(new, [long, longer], 200) == [longer, long], "nothing is known of answers so long"
    assert victims_for(new, [long, longer], 1500) == [], "the new one is as long"
    assert victims_for(new, [], 200) == []
    long.limit = longer.limit = 700
    assert victims_for(new, [long, longer], 200) == [], "less is left than what would be computed again"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 400)), min_size=4, max_size=15), st.integers(1, 3),
       st.sampled_from([1, 4, 16]))
@example([(0, 400), (50, 10), (60, 300), (150, 5), (160, 5)], 1, 4)
@pytest.mark.slow
def test_nobody_is_displaced_more_often_than_stated(asks: list[tuple[int, int]], seqs: int, quantum: int) -> None:
    """1 + log2(n / QUANTUM) times for an answer of n tokens, whatever comes; a step takes a second."""
    usual, LeastServed.QUANTUM = LeastServed.QUANTUM, quantum
    try:
        setup = Setup((800,), StepLimits(seqs, 64, seqs, None), 4096, "least-served")
        work = [Arrival(float(at), 4, answer) for at, answer in asks]
        simulation = Simulation(setup, predicting(once=1.0), 1000)
        for _ in range(500):
            simulation.scheduler.reserve.lengths.add(5, ended=True)
        done = simulation.run(work)
    finally:
        LeastServed.QUANTUM = usual
    for outcome in done.outcomes:
        assert outcome.preemptions <= 1 + max(0.0, math.log2(outcome.tokens / quantum))
    assert sum(o.preemptions for o in done.outcomes) == done.preemptions["policy"]
    if asks == [(0, 400), (50, 10), (60, 300), (150, 5), (160, 5)]:
        assert done.outcomes[0].preemptions >= 1


@pytest.mark.parametrize("policy", [FirstCome, Aging])
def test_the_others_displace_nobody(policy: type[Policy]) -> None:
    long = plain(1, 0.0, priority=9)
    long.progress.tokens += [0] * 5000
    assert policy(Clock()).victims_for(plain(2, 1.0), [long], Reserve()) == []


def test_who_displaces_says_so_and_both_are_answered() -> None:
    engine = make_engine(seqs=1, policy="least-served")
    long = submit(engine, text(0, 4), max_tokens=900)
    while len(long.output_ids) < 100:
        engine.step()
    short = submit(engine, text(1, 4), max_tokens=5)
    engine.step()
    assert engine.scheduler.running == [short]
    assert (long.why.preemptions, engine.scheduler.preemptions["policy"]) == (1, 1)
    finish_all(engine)
    assert long.why.preemptions == 1
    for request in (long, short):
        check_answer(engine, request)


def test_nobody_is_displaced_for_one_that_still_does_not_fit() -> None:
    engine = make_engine(seqs=4, pages=40, policy="least-served")
    first = submit(engine, text(0, 300), max_tokens=100, priority=-1)
    second = submit(engine, text(1, 10), max_tokens=630)
    while len(second.output_ids) < 70:
        engine.step()
    large = submit(engine, text(2, 330), max_tokens=4)
    for _ in range(20):
        engine.step()
        assert large.why.waits_on == "pages"
    assert engine.preemptions == 0
    finish_all(engine)
    for request in (first, second, large):
        check_answer(engine, request)
