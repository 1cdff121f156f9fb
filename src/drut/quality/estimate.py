"""Figures with the interval in which they lie at 95 % confidence."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

from drut.bench.stats.proportion import wilson
from drut.bench.stats.quantiles import CONFIDENCE, normal, t_half


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
    half = t_half(n - 1) * stdev(samples) / n**0.5
    return Estimate(value, value - half, value + half)


def proportion(hits: int, n: int) -> Estimate:
    """Of `n` independent trials: Wilson's score interval (Wilson, 1927)."""
    return Estimate(hits / n, *wilson(hits / n, n, normal((1 + CONFIDENCE) / 2)))
