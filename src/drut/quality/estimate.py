"""Figures with the interval in which they lie at 95 % confidence."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

import msgspec

from drut.bench.stats.intervals import student

CONFIDENCE = 0.95


class Estimate(msgspec.Struct, frozen=True):
    """`low` and `high` are None where there are too few samples to say."""

    value: float
    low: float | None
    high: float | None


def mean(samples: Sequence[float]) -> Estimate:
    """Of independent samples, by Student's distribution; from 5 samples on."""
    value, n = fmean(samples), len(samples)
    if n < 5:
        return Estimate(value, None, None)
    half = student((1 + CONFIDENCE) / 2, n - 1) * stdev(samples) / n**0.5
    return Estimate(value, value - half, value + half)


def proportion(hits: int, n: int) -> Estimate:
    """Of `n` independent trials: Wilson's score interval (Wilson, 1927)."""
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    p, spread = hits / n, z * z / n
    middle = (p + spread / 2) / (1 + spread)
    half = z / (1 + spread) * (p * (1 - p) / n + spread / (4 * n)) ** 0.5
    return Estimate(p, max(0.0, middle - half), min(1.0, middle + half))
