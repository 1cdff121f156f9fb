"""Shares of requests that depend on each other."""

from __future__ import annotations

import numpy as np
import pytest

from drut.bench.stats.proportion import design_effect, hits_effect, mean_error, wilson


@pytest.mark.parametrize(("share", "n", "low", "high"), [
    (0.5, 100, 0.4038, 0.5962), (1.0, 10, 0.7225, 1.0), (0.0, 20, 0.0, 0.1611), (0.95, 100, 0.8882, 0.9785)])
def test_wilson_against_published_tables(share: float, n: float, low: float, high: float) -> None:
    assert wilson(share, n, 1.959964) == pytest.approx((low, high), abs=2e-4)


def series(rho: float, n: int, seed: int) -> np.ndarray:
    """A first-order autoregression, whose design effect is (1 + rho) / (1 - rho)."""
    noise = np.random.default_rng(seed).standard_normal(n)
    values = np.empty(n)
    at = 0.0
    for i in range(n):
        at = rho * at + (1 - rho * rho) ** 0.5 * noise[i]
        values[i] = at
    return values


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_the_design_effect_of_a_series_with_a_known_one(rho: float) -> None:
    found = np.mean([design_effect(series(rho, 4000, seed)) for seed in range(20)])
    assert found == pytest.approx((1 + rho) / (1 - rho), rel=0.35)


def test_the_error_of_a_mean_is_what_its_spread_shows() -> None:
    found = [mean_error(series(0.8, 1000, seed)) for seed in range(100)]
    spread = np.std([mean for mean, _ in found])
    assert np.mean([error for _, error in found]) == pytest.approx(spread, rel=0.3)


def test_where_none_missed_the_waits_show_how_long_misses_would_have_lasted() -> None:
    waits = np.abs(series(0.9, 1000, 0))
    assert hits_effect(np.ones(1000), waits) > 4
    assert hits_effect(np.ones(1000), np.ones(1000)) == 1
    assert design_effect(np.ones(5)) == 1
