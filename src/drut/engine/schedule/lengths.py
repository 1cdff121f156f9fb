"""The estimate of output lengths: their distribution in live traffic, given the number of tokens generated so far.

The estimator is Kaplan and Meier's (1958): the product over all lengths of the share of outputs that continued past the
length. An output that still runs, was aborted, or was cut at `max_tokens` is censored: it counts up to its length, but
not as an end. Otherwise an engine full of long outputs would estimate from the short ones alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

OCTAVE = 8  # number of buckets per doubling of the length: a quantile is at most 9 % too long
MAX_LENGTH = 1 << 21
MIN_ENDS = 16  # with fewer ends there is no estimate
KEPT_ENDS = 1024  # at this number all counts are halved, so that old traffic is forgotten
ROUNDING = 1e-9  # tolerance for products of shares, so that a quantile that is just reached is found
FRESH = 8  # the lengths of running requests are read again after this number of ends


def _bounds() -> list[int]:
    bounds = sorted({round(2 ** (i / OCTAVE)) for i in range(21 * OCTAVE)})
    return [*bounds, MAX_LENGTH]


BOUNDS = _bounds()  # a bucket has the lengths above the previous bound, up to its own


class LengthEstimate:
    """Quantiles of output lengths. Computes in time proportional to the number of buckets, and only after an output
    ended."""

    def __init__(self) -> None:
        self._ends = [0.0] * len(BOUNDS)
        self._cut = [0.0] * len(BOUNDS)  # censored at this length
        self._running: list[int] = []
        self._survival: list[float] | None = None
        self._known: dict[tuple[int, float], int | None] = {}
        self._new = 0
        self.ends = 0.0

    def add(self, length: int, *, ended: bool, running: Iterable[int] = ()) -> None:
        """Adds an output of `length` tokens that ended by itself (`ended`) or was cut. `running`: current lengths of
        the
        outputs that still run."""
        bucket = bisect_left(BOUNDS, length)
        if not ended:
            self._cut[bucket] += 1
            return
        self._ends[bucket] += 1
        self.ends += 1
        self._new += 1
        if self.ends >= KEPT_ENDS:
            self._halve()
        if self._new >= FRESH or self.ends == MIN_ENDS:
            self._running, self._survival, self._new = list(running), None, 0

    def length(self, made: int, quantile: float) -> int | None:
        """Returns the final length that the share `quantile` of outputs with `made` tokens so far does not exceed. None
        if
        there is no estimate: too few outputs have ended, or too few of that length."""
        if self.ends < MIN_ENDS or quantile >= 1:
            return None
        first = bisect_left(BOUNDS, made + 1)
        key = first, quantile
        if self._survival is None:
            self._survival, self._known = self._estimate(), {}
        if key not in self._known:
            self._known[key] = self._reach(self._survival, first, quantile)
        return self._known[key]

    def _reach(self, survival: list[float], first: int, quantile: float) -> int | None:
        """Returns the bound of the first bucket from `first` on within which the share `quantile` ends; None if
        unknown."""
        start = survival[first - 1] if first else 1.0
        if start == 0:
            return None  # longer than all outputs so far
        for bucket in range(first, len(BOUNDS)):
            if survival[bucket] <= (1 - quantile) * start + ROUNDING:
                return BOUNDS[bucket]
        return None

    def _estimate(self) -> list[float]:
        """Returns for each bucket the share of outputs that are longer."""
        running = [0.0] * len(BOUNDS)
        for length in self._running:
            running[bisect_left(BOUNDS, length)] += 1
        at_risk = sum(self._ends) + sum(self._cut) + sum(running)
        survival, share = [], 1.0
        for ends, cut, runs in zip(self._ends, self._cut, running, strict=True):
            share = share * (1 - ends / at_risk) if ends else share
            survival.append(share if share > 1e-12 else 0.0)
            at_risk -= ends + cut + runs
        return survival

    def _halve(self) -> None:
        self._ends = [n / 2 for n in self._ends]
        self._cut = [n / 2 for n in self._cut]
        self.ends /= 2
