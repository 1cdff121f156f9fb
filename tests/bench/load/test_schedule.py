"""Absolute times, exact in the mean, for every process and rate."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drut.bench.load.schedule import ArrivalRate, Arrivals, Schedule
from drut.errors import RequestError

rates = st.floats(0.1, 500)
ramps = st.builds(lambda a, b, start, length: ArrivalRate(a, b, start, start + length), rates, rates, st.floats(0, 20),
                  st.floats(0, 50))


def test_constant_is_constant_and_keeps_the_nominal_rate() -> None:
    """Not exponential gaps made to fit, and no drift: the n-th time is n / rate, ever so late."""
    times = list(itertools.islice(Schedule(ArrivalRate.steady(7.0), "constant").times(), 100_000))
    assert times == [n / 7.0 for n in range(100_000)]


@pytest.mark.parametrize(("arrivals", "cv"), [("constant", 1.0), ("poisson", 1.0), ("gamma", 0.3), ("gamma", 3.0)])
def test_the_mean_count_is_the_nominal_one_from_the_first_second_on(arrivals: Arrivals, cv: float) -> None:
    """A process that began with a whole gap would have 4 arrivals more, or half a one less, in every run."""
    seconds, rate, runs = 2.0, 20.0, 1000
    counts = [len(Schedule(ArrivalRate.steady(rate), arrivals, cv, seed).until(seconds)) for seed in range(runs)]
    error = np.std(counts) / runs**0.5
    assert abs(np.mean(counts) - seconds * rate) <= max(4 * error, 1e-9)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gaps_have_the_mean_and_variation_asked_for(cv: float) -> None:
    times = np.array(list(itertools.islice(Schedule(ArrivalRate.steady(50.0), "gamma", cv, 3).times(), 100_000)))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.04)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06)


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    counts, _ = np.histogram(Schedule(ArrivalRate.steady(10.0), "poisson", seed=1).until(5000), 5000, (0, 5000))
    assert counts.var() == pytest.approx(10.0, rel=0.1)


@given(ramps, st.floats(0, 200))
def test_when_undoes_expected(rate: ArrivalRate, t: float) -> None:
    assert rate.when(rate.expected(t)) == pytest.approx(t, rel=1e-9, abs=1e-9)


@given(ramps)
@example(ArrivalRate(23, 1, 1.25, 1.25))
def test_expected_is_the_integral_of_the_rate(rate: ArrivalRate) -> None:
    """A sum of middles, off by half a step at most where the rate jumps."""
    ends, step = np.linspace(0, 80, 4001), 0.02
    middles = (ends[1:] + ends[:-1]) / 2
    at = np.interp(middles, [rate.ramp_from_s, max(rate.ramp_to_s, rate.ramp_from_s + 1e-12)], [rate.start, rate.end])
    off = abs(rate.end - rate.start) * step
    assert rate.expected(80.0) == pytest.approx(float(at.sum() * step), rel=1e-9, abs=off + 1e-9)


def test_a_ramp_has_its_rate_at_each_time() -> None:
    times = np.array(Schedule(ArrivalRate(10.0, 30.0, 10.0, 30.0), "constant").until(40.0))
    counts = np.histogram(times, [0, 10, 15, 25, 30, 40])[0]
    assert counts == pytest.approx([100, 62, 200, 138, 300], abs=1)


@given(st.sampled_from(["poisson", "gamma"]), st.integers(0, 99), ramps)
def test_times_ascend_and_follow_from_the_seed(arrivals: Arrivals, seed: int, rate: ArrivalRate) -> None:
    schedule = Schedule(rate, arrivals, 2.0, seed)
    times = list(itertools.islice(schedule.times(), 50))
    assert times == list(itertools.islice(schedule.times(), 50))
    assert all(a <= b for a, b in itertools.pairwise(times))
    assert times[0] >= 0
    assert times != list(itertools.islice(Schedule(rate, arrivals, 2.0, seed + 1).times(), 50))


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, -math.inf])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(RequestError, match="rate must be a positive number"):
        ArrivalRate.steady(rate)
    with pytest.raises(RequestError, match="coefficient of variation"):
        Schedule(ArrivalRate.steady(1.0), "gamma", rate)


@pytest.mark.parametrize("cv", [1e-3, 1e3])
def test_the_most_extreme_bursts_have_times(cv: float) -> None:
    assert all(math.isfinite(t) for t in itertools.islice(Schedule(ArrivalRate.steady(1.0), "gamma", cv).times(), 3000))
    for past in (cv * cv, 1e-200, 1e200):
        with pytest.raises(RequestError, match="coefficient of variation"):
            Schedule(ArrivalRate.steady(1.0), "gamma", past)
