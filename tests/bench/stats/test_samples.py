from __future__ import annotations

import math

import numpy as np
import pytest

from drut.bench.stats.samples import claims, least_samples


def naive_at_most(k: int, n: int, percent: int) -> float:
    """P(X <= k) in whole numbers."""
    return sum(math.comb(n, i) * (100 - percent) ** i * percent ** (n - i) for i in range(k + 1)) / 100**n


@pytest.mark.parametrize("percent", [50, 90, 95, 99])
@pytest.mark.parametrize("misses", [0, 1, 2, 5, 10])
def test_the_least_number_is_the_least(percent: int, misses: int) -> None:
    n = least_samples(percent, misses)
    assert naive_at_most(misses, n, percent) <= 0.05 < naive_at_most(misses, n - 1, percent)


def test_one_sample_in_a_hundred_needs_299() -> None:
    """0.99^n <= 0.05."""
    assert least_samples(99) == 299
    assert least_samples(99, 0, 0.99) == math.ceil(math.log(0.01) / math.log(0.99))


def test_a_claim_needs_its_samples() -> None:
    may = {c.percent: c.may for c in claims(np.arange(1.0, 101.0))}
    assert may == {50: True, 90: True, 95: True, 99: False}
    assert claims(np.arange(1.0, 101.0))[3].at_most_ms is None


def test_bounds_hold_as_often_as_they_say() -> None:
    """Of 400 runs of 300 samples the true percentile is within the bound in 95 % or more."""
    rng = np.random.default_rng(7)
    held = {50: 0, 90: 0, 95: 0, 99: 0}
    for _ in range(400):
        for claim in claims(np.sort(rng.exponential(1.0, 300))):
            held[claim.percent] += claim.at_most_ms >= -math.log(1 - claim.percent / 100)
    assert all(count >= 0.92 * 400 for count in held.values())
    assert held[50] < 0.99 * 400  # and is no wider than need be


def test_a_bound_is_the_order_statistic_that_the_binomial_gives() -> None:
    for claim in claims(np.arange(1.0, 501.0)):
        above = 500 - int(claim.at_most_ms)
        assert naive_at_most(above, 500, claim.percent) <= 0.05 < naive_at_most(above + 1, 500, claim.percent)


def test_failures_make_a_bound_that_has_no_end() -> None:
    assert claims(np.array([*range(300), *[math.inf] * 5]))[3].at_most_ms == "inf"
