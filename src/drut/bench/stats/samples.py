"""The number of requests that a claim about a percentile needs, by the binomial distribution."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from drut.bench.stats.distribution import PERCENTS, Figure, Floats, figure
from drut.bench.stats.quantiles import CONFIDENCE


class Claim(msgspec.Struct, frozen=True):
    """A claim about a percentile. `n` is the number of samples and `needed` the least number; `at_most_ms` is an upper
    bound of the percentile at 95 % confidence, None if there are too few samples."""

    percent: int
    n: int
    needed: int
    at_most_ms: Figure

    @property
    def may(self) -> bool:
        """Returns whether the run supports a claim about this percentile."""
        return self.n >= self.needed


def least_samples(percent: int, misses: int = 0, confidence: float = CONFIDENCE) -> int:
    """Returns the number of samples needed to claim "the percentile is within the limit" when `misses` of them miss it.

    If more than 1 - p of all requests missed the limit, so few misses among n would have a probability below 1 -
    confidence. Requests are assumed to be independent; in a queue they are not quite, so this is a lower bound.
    """
    q = 1 - percent / 100
    low, high = misses, misses + 1
    while _at_most(misses, high, q) > 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at_most(misses, middle, q) > 1 - confidence else (low, middle)
    return high


def claims(ascending_ms: Floats) -> list[Claim]:
    """Returns the claims of sorted samples, for each reported percentile."""
    n = len(ascending_ms)
    result = []
    for percent in PERCENTS:
        needed = least_samples(percent)
        bound = float(ascending_ms[n - 1 - _misses_allowed(percent, n)]) if n >= needed else None
        result.append(Claim(percent, n, needed, figure(bound)))
    return result


def _misses_allowed(percent: int, n: int) -> int:
    """Returns the maximum of n samples that may lie above an upper bound of the percentile."""
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _at_most(middle, n, 1 - percent / 100) <= 1 - CONFIDENCE else (low, middle)
    return low


def _at_most(k: int, n: int, q: float) -> float:
    """Returns P(X <= k) of a binomial distribution of n draws with probability q, by logarithms, because terms
    underflow."""
    if k >= n:
        return 1.0
    i = np.arange(1, k + 1)
    steps = np.log(n - i + 1) - np.log(i) + math.log(q) - math.log1p(-q)
    logs = n * math.log1p(-q) + np.concatenate(([0.0], np.cumsum(steps)))
    return float(np.exp(logs).sum())
