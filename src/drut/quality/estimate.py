"""Estimates with their confidence interval of 95 %."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

import msgspec

from drut.bench.stats.proportion import wilson
from drut.bench.stats.quantiles import CONFIDENCE, normal, t_half


class Estimate(msgspec.Struct, frozen=True):
    """An estimate; `low` and `high` are None if there are too few samples."""

    value: float
    low: float | None
    high: float | None


def mean(samples: Sequence[float]) -> Estimate:
    """Returns the mean of independent samples, with an interval by Student's distribution from 5 samples on."""
    value, n = fmean(samples), len(samples)
    if n < 5:
        return Estimate(value, None, None)
    half = t_half(n - 1) * stdev(samples) / n**0.5
    return Estimate(value, value - half, value + half)


def proportion(hits: int, n: int) -> Estimate:
    """Returns the proportion of `n` independent trials, with Wilson's score interval (Wilson, 1927)."""
    return Estimate(hits / n, *wilson(hits / n, n, normal((1 + CONFIDENCE) / 2)))
