"""Confidence intervals of a run's figures, by resampling blocks of its time.

Whole blocks are drawn with replacement, so that dependent samples within a block stay together.
"""

from __future__ import annotations

from statistics import NormalDist

import msgspec
import numpy as np

from drut.bench.stats.distribution import Figure, Floats, figure, percentile
from drut.bench.stats.quantiles import t_half

DRAWS = 500


class Interval(msgspec.Struct, frozen=True):
    """The 95 % confidence interval of a figure. `noise_floor`: two runs like this one must differ by more than this
    share of the figure to be distinguishable; None if the interval has no upper bound."""

    value: Figure
    low: Figure
    high: Figure
    noise_floor: float | None


class Resampling:
    """Draws of `blocks` blocks, the same draws for each figure."""

    def __init__(self, blocks: int, seed: int = 0) -> None:
        self._blocks = blocks
        self._draws = np.random.default_rng(seed).integers(0, blocks, (DRAWS, blocks))

    def rate(self, amounts: Floats, seconds: float) -> Interval:
        """Returns the interval of a rate: the amounts of the blocks over all `seconds`."""
        return self.interval(float(amounts.sum()) / seconds, amounts[self._draws].sum(1) / seconds)

    def percentile(self, samples: list[Floats], percent: int) -> Interval | None:
        """Returns the interval of a percentile of samples by block. The samples are sorted once; a draw of blocks only
        changes how often each one counts."""
        values, owner = np.concatenate(samples), np.repeat(np.arange(len(samples)), [len(b) for b in samples])
        if not len(values):
            return None
        order = np.argsort(values, kind="stable")
        values, owner = values[order], owner[order]
        times = np.stack([np.bincount(draw, minlength=len(samples)) for draw in self._draws])
        resampled = np.empty(len(self._draws))
        for i, weight in enumerate(times):
            below = np.cumsum(weight[owner])
            rank = max(-(-percent * int(below[-1]) // 100), 1)
            resampled[i] = values[min(int(np.searchsorted(below, rank)), len(values) - 1)]
        return self.interval(percentile(values, percent), resampled)

    def interval(self, value: float, resampled: Floats) -> Interval:
        """Returns the percentile interval at levels that allow for few blocks (Hesterberg, 2015, "expanded
        percentile")."""
        n = self._blocks
        tail = NormalDist().cdf(-t_half(n - 1) * (n / (n - 1)) ** 0.5)
        low, high = (float(np.quantile(resampled, q, method="nearest")) for q in (tail, 1 - tail))
        floor = None
        if np.isfinite(high) and value > 0:
            floor = 2**0.5 * (high - low) / 2 / value
        return Interval(figure(value), figure(low), figure(high), floor)
