"""The ratio of two things that were measured side by side in a few rounds, and where it lies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

CONFIDENCE = 0.95
LEAST_ROUNDS = 3  # for a verdict: two that agree by chance look sure


class Paired(NamedTuple):
    """The geometric mean of a ratio over rounds, with its 95 % interval."""

    value: float
    low: float
    high: float
    rounds: int

    @property
    def apart(self) -> bool:
        """Whether the two can be told apart."""
        return self.rounds >= LEAST_ROUNDS and not self.low <= 1 <= self.high


def paired(over: Mapping[int, float], under: Mapping[int, float]) -> Paired | None:
    """Of figures by round, none below 0; rounds that one of them lacks do not count. None for fewer than two.

    What slows the machine in a round slows both, and goes out of the ratio. Student's interval on the logarithms: with
    3 to 5 rounds resampling them would see too few different draws, and be far too sure. A rate of 0 has no logarithm,
    and to leave its round out would tell of the better rounds alone: then the ratio is that of the means, with
    Student's interval on the differences. None where all of `under` is 0.
    """
    pairs = [(over[r], under[r]) for r in sorted(over.keys() & under.keys())]
    if len(pairs) < 2:
        return None
    if min(map(min, pairs)) > 0:
        middle, half = _student([math.log(a / b) for a, b in pairs])
        return Paired(_exp(middle), _exp(middle - half), _exp(middle + half), len(pairs))
    level = statistics.fmean(b for _, b in pairs)
    if not level:
        return None
    middle, half = (x / level for x in _student([a - b for a, b in pairs]))
    return Paired(1 + middle, max(1 + middle - half, 0.0), 1 + middle + half, len(pairs))


def _student(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half its interval."""
    n = len(values)
    return statistics.fmean(values), t_quantile((1 + CONFIDENCE) / 2, n - 1) * statistics.stdev(values) / n**0.5


def _exp(x: float) -> float:
    return math.exp(min(max(x, -700.0), 700.0))


@cache
def t_quantile(p: float, df: int) -> float:
    """The p-quantile, 0.5 < p < 1, of Student's distribution with a whole number of degrees of freedom, by bisection
    of its distribution function; 1e300 bounds it."""
    low, high = 0.0, 1.0
    while _within(high, df) < 2 * p - 1 and high < 1e300:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, df) < 2 * p - 1 else (low, middle)
    return high


def _within(t: float, df: int) -> float:
    """P(|T| <= t), a finite sum (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
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
