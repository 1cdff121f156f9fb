"""Quantiles of Student's distribution, and the slope of a series whose neighbours resemble each other."""

from __future__ import annotations

from statistics import NormalDist

import msgspec
import numpy as np

from drut.bench.metrics.distribution import Floats

_MOST_RHO = 0.98


def normal(p: float) -> float:
    """The p-quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(p)


def student(p: float, df: float) -> float:
    """The p-quantile of Student's distribution, by the Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5); within
    1 % of it for p up to 0.995 from 4 degrees of freedom on."""
    z = normal(p)
    terms = (z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
             (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160)
    return sum(term / df**k for k, term in enumerate(terms))


def autocorrelation(residuals: Floats, fitted: int) -> float:
    """Lag-1 correlation of the residuals of a fit with so many parameters, from 0 to 0.98.

    Its estimate is too low by about (1 + 3 rho) / n for a mean (Kendall, 1954), and by as much again for each further
    parameter; that is added.
    """
    n, power = len(residuals), float(residuals @ residuals)
    if power <= 0 or n < 4:
        return 0.0
    rho = float(residuals[1:] @ residuals[:-1]) / power
    rho += (fitted + (fitted + 2) * max(rho, 0.0)) / n
    return min(max(rho, 0.0), _MOST_RHO)


class Slope(msgspec.Struct, frozen=True):
    """A least-squares slope per second with its interval. `independent` is how many independent values the series is
    worth."""

    per_s: float
    low: float
    high: float
    independent: float


def slope(values: Floats, step_s: float, confidence: float = 0.95) -> Slope:
    """Of values `step_s` apart. Noise is taken as a first-order autoregression: its variance of the slope is that of
    independent noise times (1 + rho) / (1 - rho), and the degrees of freedom shrink by as much."""
    n = len(values)
    t = step_s * (np.arange(n) - (n - 1) / 2)
    spread = float(t @ t)
    per_s = float(t @ values) / spread
    residuals = values - values.mean() - per_s * t
    rho = autocorrelation(residuals, 2)
    inflation = (1 + rho) / (1 - rho)
    independent = n / inflation
    df = max(independent - 2, 1.0)
    variance = float(residuals @ residuals) / max(n - 2 * inflation, 1.0) / spread * inflation
    half = student((1 + confidence) / 2, max(df, 4.0)) * variance**0.5
    return Slope(per_s, per_s - half, per_s + half, independent)
