"""Counts of values by bucket: what a Prometheus histogram is made of, at the cost of a bisection a value."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """`counts[i]` values were at most `bounds[i]` and above the bound before; the last count is those above all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` ascend."""
        self.bounds = list(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0  # sum of the values

    @classmethod
    def of(cls, bounds: Sequence[float], counts: Sequence[int], total: float) -> Histogram:
        """One that was counted elsewhere. `counts` has one entry more than `bounds`, or none at all."""
        made = cls(bounds)
        made.counts[: len(counts)], made.total = counts, total
        return made

    def add(self, value: float, times: int = 1) -> None:
        """Counts `value`, as often as it occurred."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


def spread(least: float, most: float, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> list[float]:
    """Bounds from `least` to `most`, powers of ten times each of `steps`, for values of unknown magnitude."""
    bounds: list[float] = []
    power = -9
    while not bounds or bounds[-1] < most:
        bounds += [b for step in steps if least <= (b := float(f"{step:g}e{power}")) <= most]
        power += 1
        if power > 9:
            break
    return bounds
