"""Counts of values by bucket, for Prometheus histograms. Adding a value takes a bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """A histogram: `counts[i]` values are at most `bounds[i]` and above the previous bound; the last count is of values
    above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` must be ascending."""
        self.bounds = list(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0  # sum of the values

    @classmethod
    def of(cls, bounds: Sequence[float], counts: Sequence[int], total: float) -> Histogram:
        """Returns a histogram with existing counts: one entry more than `bounds`, or none."""
        made = cls(bounds)
        made.counts[: len(counts)], made.total = counts, total
        return made

    def add(self, value: float, times: int = 1) -> None:
        """Counts `value`, which occurred `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times


def spread(least: float, most: float, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> list[float]:
    """Returns bounds from `least` to `most`, powers of ten times each of `steps`, for values of unknown magnitude."""
    bounds: list[float] = []
    power = -9
    while not bounds or bounds[-1] < most:
        bounds += [b for step in steps if least <= (b := float(f"{step:g}e{power}")) <= most]
        power += 1
        if power > 9:
            break
    return bounds
