"""The ratio of two figures that were measured in the same rounds, with its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drut.bench.stats.quantiles import t_half

MIN_ROUNDS = 3  # for a verdict: two rounds that agree by chance look certain


class Paired(NamedTuple):
    """The geometric mean of a ratio over rounds, with its 95 % interval."""

    value: float
    low: float
    high: float
    rounds: int

    @property
    def apart(self) -> bool:
        """Returns whether the interval excludes 1."""
        return self.rounds >= MIN_ROUNDS and not self.low <= 1 <= self.high


def paired(over: Mapping[int, float], under: Mapping[int, float]) -> Paired | None:
    """Returns the ratio of figures by round, all of them at least 0; rounds without both figures do not count. None for
    fewer than two rounds.

    A slow machine slows both figures of a round, which cancels in the ratio. The interval is Student's on the
    logarithms: with 3 to 5 rounds, resampling has too few different draws and would be far too narrow. A rate of 0 has
    no logarithm, and leaving out its round would favour the better rounds: then the ratio is that of the means, with
    Student's interval on the differences. None if all of `under` is 0.
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
    """Returns the mean and half the width of its interval."""
    n = len(values)
    return statistics.fmean(values), t_half(n - 1) * statistics.stdev(values) / n**0.5


def _exp(x: float) -> float:
    return math.exp(min(max(x, -700.0), 700.0))
