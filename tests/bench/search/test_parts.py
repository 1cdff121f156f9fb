"""The parts of a search, on points made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from drut.bench.search import curve, limit, saturation
from drut.bench.search.pace import Pace, SpentError
from drut.bench.search.trial import SearchTrial, TrialAsk, worked_off


def trial(*, rate: float | None = None, users: int | None = None, share: float = 1.0, n: int = 1000, e2e: float = 0.05,
          served: float = 10.0, phase: str = "curve", valid: bool = True, steady: str = "steady") -> SearchTrial:
    """Its misses are spread evenly, and its latencies are all the same."""
    good = np.ones(n)
    misses = round((1 - share) * n)
    if misses:
        good[np.linspace(0, n - 1, misses).astype(int)] = 0
    ask = TrialAsk(phase=phase, warmup_s=1.0, window_s=10.0, grace_s=5.0, rate=rate,
                   concurrency=users)  # type: ignore[arg-type]
    return SearchTrial(ask, np.full(n, e2e), good, np.full(10, served), valid=valid, steady=steady)


def test_requests_count_with_the_share_of_their_time() -> None:
    """Three users, each asking again at once: three over the time of a request, wherever the window's edges are."""
    begun = np.concatenate([np.arange(0, 20, 0.7) + offset for offset in (0.0, 0.1, 0.5)])
    served = worked_off(begun, begun + 0.7, (2.0, 12.34))
    assert served == pytest.approx(np.full(10, 3 / 0.7), rel=1e-9)


def test_saturation_is_of_fresh_runs_and_not_the_luckiest() -> None:
    climbed = [trial(users=1, served=20), trial(users=4, served=80), trial(users=8, served=85),
               trial(users=16, served=84)]
    found = saturation.saturation(climbed)
    assert (found.value, found.low, "no fresh run" in found.why) == (None, 85, True)
    found = saturation.saturation([*climbed, trial(users=8, served=80, phase="saturate")])
    assert found.value == pytest.approx(80)
    assert found.why == ""


def test_no_saturation_where_throughput_still_grows() -> None:
    found = saturation.saturation([trial(users=1, served=20), trial(users=2, served=40)])
    assert (found.value, found.low) == (None, 40)
    assert "still grew at 2" in found.why
    assert saturation.saturation([trial(users=1, valid=False)]).value is None


def test_the_climb_ends_after_two_steps_without_growth() -> None:
    trials: list[SearchTrial] = []
    climb = saturation.climb(trials, Pace(lambda: 0.0, 600.0), (1, 2), 150.0)
    asked = []
    ask = next(climb)
    try:
        while True:
            asked.append((ask.phase, ask.concurrency))
            users = ask.concurrency or 0
            trials.append(trial(users=users, served=20 * min(users, 4), phase=ask.phase))
            ask = climb.send(trials[-1])
    except StopIteration:
        pass
    assert asked == [*(("curve", c) for c in (1, 2, 4, 8, 16)), ("saturate", 4), ("saturate", 4)]


def test_void_runs_of_the_climb_show_how_long_the_next_must_be() -> None:
    """Else eight users of a server that was only seen to serve one would get eight times the time of a request."""
    pace = Pace(lambda: 0.0, 600.0, alone_s=0.5, slow_s=0.5)
    trials = [trial(users=users, served=2 * users, valid=users == 1) for users in (1, 2, 4, 8)]
    ask = next(saturation.climb(trials, pace, (8,), 20.0))
    assert (ask.warmup_s, ask.window_s) == (2.5, 2.5)


@pytest.mark.parametrize(("a", "m", "knee"), [
    (0.5, 1.0, 2 - math.sqrt(2)),  # M/D/1: 1 + x / 2 (1 - x)
    (1.0, 1.0, 0.5),  # M/M/1: 1 / (1 - x)
])
def test_the_knee_of_curves_that_theory_knows(a: float, m: float, knee: float) -> None:
    rates = [0.3, 0.5, 0.7, 0.85, 0.93]
    trials = [trial(rate=100 * x, e2e=0.01 * (1 + a * x**m / (1 - x))) for x in rates] + [trial(users=1, e2e=0.01)]
    found = curve.knee(trials, 100.0)
    assert found.value == pytest.approx(100 * knee, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 100 * knee < found.high


def test_no_knee_without_growth_saturation_or_points() -> None:
    flat = [trial(rate=r) for r in (30.0, 50.0, 70.0, 90.0)]
    assert curve.knee(flat, 100.0).value is None
    assert "no saturation" in curve.knee(flat, None).why
    assert "fewer than 3" in curve.knee(flat[:2], 100.0).why


def test_a_verdict_needs_enough_requests_and_a_server_that_settled() -> None:
    def verdict(**more: object) -> bool | None:
        return limit.levels([trial(rate=5.0, **more)])[0].verdict(0.95)  # type: ignore[arg-type]

    least = limit.least_requests(0.95)
    assert least >= 59
    assert verdict(n=least) is True
    assert verdict(n=least - 5) is None
    assert verdict(share=0.95) is None
    assert verdict(share=0.9) is False
    assert verdict(steady="not steady") is None
    assert limit.levels([trial(rate=5.0, valid=False)]) == []


def test_all_runs_at_a_rate_count_together() -> None:
    level, = limit.levels([trial(rate=5.0, share=0.97, n=300), trial(rate=5.0, share=0.97, n=3000)])
    assert (level.looks, level.share) == (2, pytest.approx(0.97))
    assert level.verdict(0.95) is True


def test_shares_are_made_to_fall_with_the_rate() -> None:
    known = limit.levels([trial(rate=r, share=s) for r, s in ((1.0, 1.0), (2.0, 0.8), (3.0, 0.9), (4.0, 0.5))])
    assert limit.monotone(known) == pytest.approx([1.0, 0.85, 0.85, 0.5])


def test_the_rate_lies_where_the_curve_crosses() -> None:
    def share(rate: float) -> float:
        return 1 / (1 + math.exp(-(math.log(19) - 6 * math.log(rate / 40))))

    trials = [trial(rate=r, share=share(r), n=20_000) for r in (32.0, 38.0, 43.0, 50.0)]
    found = limit.slo_rate(trials, 0.95, 80.0, 0.05)
    assert found.value == pytest.approx(40, rel=0.005)
    assert (found.low, found.high) == (38, 43)


def test_a_rate_that_fails_below_one_that_holds_wins() -> None:
    trials = [trial(rate=10.0), trial(rate=20.0, share=0.5), trial(rate=30.0), trial(rate=40.0, share=0.1)]
    found = limit.slo_rate(trials, 0.95, None, 0.05)
    assert (found.low, found.high) == (10, 20)


def test_what_cannot_be_bracketed_is_reported() -> None:
    assert "held at every rate" in limit.slo_rate([trial(rate=10.0)], 0.95, None, 0.05).why
    assert "50.0% of requests held" in limit.slo_rate([trial(rate=10.0, share=0.5)], 0.95, None, 0.05).why
    capped = limit.slo_rate([trial(rate=76.0)], 0.95, 80.0, 0.05)
    assert (capped.low, capped.high) == (76, 80)
    assert capped.value == pytest.approx(78, abs=0.1)


def test_no_run_begins_that_the_budget_does_not_hold() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0], 100.0)
    assert pace.open("curve", 10.0, 50.0).window_s < 50
    now[0] = 90.0
    ask = pace.open("curve", 10.0, 500.0)
    assert ask.most_s + pace.start_s <= 10.0 + 1e-9
    now[0] = 98.5
    with pytest.raises(SpentError):
        pace.open("curve", 10.0, 50.0)
