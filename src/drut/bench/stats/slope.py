"""The slope of an autocorrelated series."""

from __future__ import annotations

import msgspec
import numpy as np

from drut.bench.stats.distribution import Floats
from drut.bench.stats.quantiles import t_half

_MAX_RHO = 0.98


def autocorrelation(residuals: Floats, fitted: int) -> float:
    """Returns the lag-1 correlation of the residuals of a fit with `fitted` parameters, from 0 to 0.98.

    Its estimate is too low by about (1 + 3 rho) / n for a mean (Kendall, 1954), and by the same amount for each further
    parameter; this is corrected.
    """
    n, power = len(residuals), float(residuals @ residuals)
    if power <= 0 or n < 4:
        return 0.0
    rho = float(residuals[1:] @ residuals[:-1]) / power
    rho += (fitted + (fitted + 2) * max(rho, 0.0)) / n
    return min(max(rho, 0.0), _MAX_RHO)


class Slope(msgspec.Struct, frozen=True):
    """A least-squares slope per second with its interval. `independent` is the number of independent values that the
    series is worth."""

    per_s: float
    low: float
    high: float
    independent: float


def slope(values: Floats, step_s: float) -> Slope:
    """Returns the slope of values `step_s` apart. Noise is modelled as a first-order autoregression: the variance of
    the slope is that of independent noise times (1 + rho) / (1 - rho), and the degrees of freedom shrink by the same
    factor."""
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
    half = t_half(max(int(df), 4)) * variance**0.5
    return Slope(per_s, per_s - half, per_s + half, independent)
