"""The simulator does what the engine does: the same steps, in the order of a virtual clock."""

from __future__ import annotations

import random

import pytest

from drut.engine.request.params import SamplingParams
from drut.engine.schedule.work import StepLimits
from drut.errors import RequestError
from drut.plan.simulate import Arrival, Setup, Simulation
from tests.engine.testbed import make_engine, predicting, text

SECOND = predicting(once=1.0)  # each step takes a second


def random_work(seed: int, count: int = 20) -> list[Arrival]:
    dice = random.Random(seed)
    return [Arrival(0.0, dice.randrange(1, 60), dice.randrange(1, 60)) for _ in range(count)]


CASES = [*((pages, policy, quantile, (0,)) for pages in (10, 24, 200) for policy in ("fcfs", "least-served", "aging")
           for quantile in (0.0, 0.5, 1.0)),
         *((pages, "aging", 0.0, windows) for pages in (10, 24) for windows in ((0, 20), (40, 10)))]


@pytest.mark.parametrize(("pages", "policy", "quantile", "windows"), CASES)
def test_it_takes_the_steps_of_the_engine(pages: int, policy: str, quantile: float, windows: tuple[int, ...]) -> None:
    """All at once, in chunks of 7: the same steps, rows, preemptions and order of ends as without a simulator, and the
    same pages of each KV group held in the end."""
    work = random_work(pages)
    engine = make_engine(pages=pages, seqs=6, tokens=40, chunk=7, policy=policy, reserve_quantile=quantile,
                         eos=frozenset(), context=400, windows=windows, window_pages=12)
    engine.scheduler.policy.clock = lambda: 0.0
    params = SamplingParams(max_tokens=90, ignore_eos=True, seed=0, temperature=0)
    requests = {engine.submit(text(i, a.prompt), params)[0]: a for i, a in enumerate(work)}
    for request in requests:
        request.arrived = request.waits_since = 0.0
    ends = []
    while engine.busy:
        for update in engine.step():
            if len(update.request.output_ids) == requests[update.request].answer:
                engine.finish(update.request, "stop")
                ends.append(requests[update.request])
    sizes = (pages, 12)[: len(windows)]
    setup = Setup(sizes, StepLimits(6, 40, 6, 7, 1), 400, policy, aging_s=1e6, reserve_quantile=quantile,
                  windows=windows)
    simulation = Simulation(setup, SECOND, 90)
    done = simulation.run(work)
    executable = engine.runner.executable
    assert (done.steps, done.rows) == (executable.steps, executable.rows)  # type: ignore[attr-defined]
    assert done.preemptions == engine.scheduler.preemptions
    assert [p.cached for p in simulation.scheduler.cache.pools] == [p.cached for p in engine.cache.pools]
    assert [o.preemptions for o in done.outcomes] == [r.why.preemptions for r in requests]
    assert [o.tokens for o in done.outcomes] == [len(r.output_ids) for r in requests]
    finished = [o.finished_at for o in done.outcomes]
    assert [finished[work.index(a)] for a in ends] == sorted(finished)


def test_time_is_that_of_the_steps_and_the_gaps_between() -> None:
    setup = Setup((64,), StepLimits(4, 64, 4, None, 1), 512)
    done = Simulation(setup, SECOND).run([Arrival(5.0, 10, 3), Arrival(100.0, 70, 1)])
    first, second = done.outcomes
    assert (first.ttft, first.finished_at, first.tpot) == (1.0, 8.0, 1.0)
    assert (second.ttft, second.finished_at) == (2.0, 102.0)
    assert (done.steps, done.rows, done.seconds) == (5, 10 + 2 + 70, 102.0)


def test_a_burst_ends_where_a_request_arrives_or_ends() -> None:
    """With and without bursts all comes at the same time."""
    rng = random.Random(3)
    work = [Arrival(rng.uniform(0, 300), rng.randrange(1, 40), rng.randrange(1, 60)) for _ in range(30)]
    cost = predicting(once=1.0, row=0.02, sample=0.01, row_token=1e-3)
    plain, bursts = (Simulation(Setup((200,), StepLimits(8, 64, 8, 16, burst), 512), cost).run(work) for burst in (1,
                                                                                                                   16))
    assert bursts.rows == plain.rows
    for one, other in zip(plain.outcomes, bursts.outcomes, strict=True):
        assert other.first_token_at == pytest.approx(one.first_token_at)
        assert other.finished_at == pytest.approx(one.finished_at)


def test_an_answer_ends_at_its_limit() -> None:
    done = Simulation(Setup((4,), StepLimits(4, 64, 4, None, 1), 512), SECOND, limit=20).run(
        [Arrival(0.0, 10, 100), Arrival(0.0, 60, 100)])
    assert [o.tokens for o in done.outcomes] == [20, 4]


def test_what_never_fits_is_refused() -> None:
    with pytest.raises(RequestError, match="a prompt of 64 tokens leaves no room in 64"):
        Simulation(Setup((4,), StepLimits(4, 64, 4, None, 1), 512), SECOND).run([Arrival(0.0, 64, 1)])
