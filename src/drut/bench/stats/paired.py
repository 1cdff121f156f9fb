"""The ratio of two things that were measured side by side in a few rounds, and where it lies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drut.bench.stats.quantiles import t_half

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
    return statistics.fmean(values), t_half(n - 1) * statistics.stdev(values) / n**0.5


def _exp(x: float) -> float:
    return math.exp(min(max(x, -700.0), 700.0))
