"""Quantiles of the normal distribution and of Student's t-distribution."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

CONFIDENCE = 0.95  # of every interval


def normal(p: float) -> float:
    """Returns the p-quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(p)


@cache
def t_quantile(p: float, df: int) -> float:
    """Returns the p-quantile, 0.5 < p < 1, of Student's t-distribution with an integer number of degrees of freedom, by
    bisection of its distribution function; the maximum is 1e300."""
    low, high = 0.0, 1.0
    while _within(high, df) < 2 * p - 1 and high < 1e300:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, df) < 2 * p - 1 else (low, middle)
    return high


def t_half(df: int) -> float:
    """Returns half the width of an interval at CONFIDENCE, in standard errors."""
    return t_quantile((1 + CONFIDENCE) / 2, df)


def _within(t: float, df: int) -> float:
    """Returns P(|T| <= t) by a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    theta = math.atan(t / math.sqrt(df))
    sine, square = math.sin(theta), math.cos(theta) ** 2
    odd = df % 2
    term = total = 1.0
    for k in range(2 + odd, df - 1, 2):
        term *= (k - 1) / k * square
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (theta + (sine * math.cos(theta) * total if df > 1 else 0.0))
