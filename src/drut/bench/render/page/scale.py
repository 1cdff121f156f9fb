"""Maps values to positions in a plot, and places its ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

MAX = 1e15  # larger values are cut, so that no arithmetic here overflows
LOG = ", log scale"  # suffix of an axis title
_DECADE = (1, 2, 5)


class Scale(NamedTuple):
    """Maps `low` to `begin` and `high` to `end`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        """Returns the position, limited to the ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.begin + part * (self.end - self.begin)

    def ticks(self, most: int = 6) -> list[float]:
        """Returns round values within the ends."""
        if self.log and self.high / self.low > 8:
            return self._decades(most)
        step = nice((self.high - self.low) / max(most - 1, 1))
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _decades(self, most: int) -> list[float]:
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for digits in (_DECADE, (1, 3), (1,)):
            ticks = [d * 10.0**e for e in range(low, high + 1) for d in digits
                     if self.low * (1 - 1e-9) <= d * 10.0**e <= self.high * (1 + 1e-9)]
            if len(ticks) <= most + 1:
                return ticks
        return ticks[::math.ceil(len(ticks) / most)]


def linear(values: Iterable[float], begin: float, end: float, *, at_most: float | None = None) -> Scale:
    """Returns a linear scale from 0 to a little above the largest value."""
    high = at_most if at_most is not None else max((min(v, MAX) for v in values), default=0.0) * 1.06
    return Scale(0.0, high if high > 1 / MAX else 1.0, begin, end, False)


def logarithmic(values: Iterable[float], begin: float, end: float, *, room: float = 0.04) -> Scale:
    """Returns a logarithmic scale around positive values, with a margin at both ends."""
    known = [min(max(v, 1 / MAX), MAX) for v in values if v > 0] or [1.0]
    low, high = min(known), max(known)
    spread = max((high / low) ** room, 1.02)
    return Scale(low / spread, high * spread, begin, end, True)


def nice(step: float) -> float:
    """Returns the smallest of 1, 2, 5 times a power of ten that is at least `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(d * power for d in (*_DECADE, 10) if d * power >= step * (1 - 1e-9))


def label(value: float) -> str:
    """Formats the label of a tick."""
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.0e}"
    if abs(value) >= 1e4:
        return f"{value / 1e6:.4g}M" if abs(value) >= 1e6 else f"{value / 1e3:.4g}k"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
