"""The test can reject a run, and accepts autocorrelated series."""

from __future__ import annotations

import numpy as np
import pytest

from drut.bench.stats.slope import slope
from drut.bench.stats.steady import level_change, mser5, steady


def noise(n: int, rho: float, seed: int) -> np.ndarray:
    """A first-order autoregression of variance 1."""
    rng = np.random.default_rng(seed)
    shocks = rng.standard_normal(n) * (1 - rho**2) ** 0.5
    values = np.empty(n)
    values[0] = rng.standard_normal()
    for i in range(1, n):
        values[i] = rho * values[i - 1] + shocks[i]
    return values


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_a_slope_is_seldom_seen_where_there_is_none(rho: float) -> None:
    runs = 200
    false = sum(not (s.low <= 0 <= s.high) for s in (slope(noise(120, rho, seed), 1.0) for seed in range(runs)))
    assert false <= 0.1 * runs  # 5 % are meant, and 0.1 is 3 standard errors above


def test_ordinary_least_squares_would_see_one_often() -> None:
    """The naive twin: what the allowance for autocorrelation is there for."""
    runs, false, n = 200, 0, 120
    t = np.arange(n) - (n - 1) / 2
    for seed in range(runs):
        values = noise(n, 0.8, seed)
        per_s = t @ values / (t @ t)
        rest = values - values.mean() - per_s * t
        false += abs(per_s) > 1.98 * (rest @ rest / (n - 2) / (t @ t)) ** 0.5
    assert false > 0.3 * runs


def test_a_slope_is_what_it_is() -> None:
    s = slope(5 + 0.3 * np.arange(100) + 0.1 * noise(100, 0.3, 1), 1.0)
    assert s.per_s == pytest.approx(0.3, abs=0.002)
    assert s.low < 0.3 < s.high
    assert s.high - s.low < 0.01


def test_mser_cuts_off_the_transient() -> None:
    values = 100 + noise(200, 0.0, 2)
    values[:40] -= np.linspace(60, 0, 40)
    assert 25 <= mser5(values) <= 45
    assert mser5(np.full(50, 3.0)) == 0
    assert mser5(np.ones(3)) == 0


def test_mser_against_its_definition() -> None:
    values = noise(83, 0.4, 5)
    batches = values[:80].reshape(-1, 5).mean(1)
    score = [((batches[d:] - batches[d:].mean()) ** 2).sum() / (16 - d) ** 2 for d in range(9)]
    assert mser5(values) == 5 * int(np.argmin(score))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_a_change_of_level_is_seldom_seen_where_there_is_none(rho: float) -> None:
    assert sum(level_change(10 + noise(120, rho, seed))[2] > 3.3 for seed in range(100)) <= 11


def test_steady() -> None:
    verdicts = [steady(500 + 40 * noise(120, 0.3, s), 20 + 3 * noise(120, 0.6, s + 999)).verdict for s in range(60)]
    assert verdicts.count("steady") >= 53


def test_a_queue_that_grows_is_not_steady() -> None:
    """Over capacity tokens come at a perfectly level rate: what gives it away is what is in flight."""
    s = steady(500 + 5 * noise(60, 0.0, 1), 10 + 0.5 * np.arange(60) + 2 * noise(60, 0.5, 2))
    assert s.verdict == "not steady"
    assert "requests in flight grew by" in s.reasons[0]


def test_a_warm_up_that_was_too_short_is_not_steady() -> None:
    tokens = 500 + 20 * noise(120, 0.2, 3)
    tokens[:30] *= 0.5
    s = steady(tokens, 20 + 2 * noise(120, 0.3, 4))
    assert s.verdict == "not steady"
    assert s.transient_s == 30
    assert "output went up" in s.reasons[0]


def test_a_server_that_slows_down_is_not_steady() -> None:
    tokens = 500 + 20 * noise(120, 0.2, 3)
    tokens[90:] *= 0.6
    s = steady(tokens, np.full(120, 8.0))
    assert s.verdict == "not steady"
    assert "output went down" in s.reasons[0]


def test_no_change_that_matters_is_steady_however_sure() -> None:
    s = steady(500 + 0.01 * np.arange(100), 20 + 0.001 * np.arange(100))
    assert s.verdict == "steady"
    assert s.slope is not None
    assert s.slope.low > 0


def test_too_short_to_say() -> None:
    assert steady(np.full(19, 5.0), np.full(19, 5.0)).verdict == "too short"
    slow = steady(np.full(40, 500.0), 50 + 10 * noise(400, 0.995, 8)[:40])
    assert slow.verdict == "too short"
    assert "independently" in slow.reasons[0]
