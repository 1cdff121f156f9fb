"""Shares of requests when successive requests are correlated."""

from __future__ import annotations

import numpy as np

from drut.bench.stats.distribution import Floats
from drut.bench.stats.slope import autocorrelation

BATCHES = 10
MIN_MISSES = 10  # least number of misses in a series for an estimate of its own correlation


def wilson(share: float, n: float, z: float) -> tuple[float, float]:
    """Returns the score interval of a share of `n` independent draws (Wilson, 1927), `z` standard errors to each side.
    `n` need not be an integer."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(middle - half, 0.0), min(middle + half, 1.0)


def design_effect(values: Floats) -> float:
    """Returns how many values of a series are worth one independent value (Kish, 1965): 1 or more.

    It is the larger of two estimates: the variance of 10 batch means over that of independent values, which is too low
    if batches are shorter than the correlation length, and that of a first-order autoregression, which is too low if
    the correlation decays more slowly. Both are too low for few values.
    """
    n, variance = len(values), float(np.var(values))
    if n < 2 * BATCHES or variance <= 1e-20 * float(np.square(values).max()):  # rounding errors alone have a pattern
        return 1.0
    length = n // BATCHES
    means = values[: BATCHES * length].reshape(BATCHES, length).mean(1)
    rho = autocorrelation(values - values.mean(), 1)
    return max(1.0, float(means.var(ddof=1)) * length / variance, (1 + rho) / (1 - rho))


def mean_error(values: Floats) -> tuple[float, float]:
    """Returns the mean of a series and its standard error."""
    if len(values) < 2:
        return float(values.mean()), float("inf")
    return float(values.mean()), float((np.var(values, ddof=1) / len(values) * design_effect(values)) ** 0.5)


def hits_effect(hits: Floats, waits: Floats) -> float:
    """Returns the design effect of hits (1) and misses (0). Misses come in clusters, and a run without misses may just
    not have met one; if there are few, the latencies that cause them show how long such clusters are."""
    if min(hits.sum(), len(hits) - hits.sum()) >= MIN_MISSES:
        return design_effect(hits)
    finite = waits[np.isfinite(waits)]
    return max(design_effect(hits), design_effect(finite))
