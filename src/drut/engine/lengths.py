"""How long answers get: the live distribution of their lengths, given what an answer has already.

The estimate is Kaplan and Meier's (1958): of the answers that reached a length, the share that went on, multiplied over
all lengths. An answer that still runs, was aborted, or was cut at its `max_tokens` counts as long as it was there to be
seen, and never as an end: with the ended ones alone, an engine full of long answers would believe in short ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

OCTAVE = 8  # lengths are counted in buckets, so many to a doubling: a quantile is at most 9 % too long
MAX_LENGTH = 1 << 21
LEAST_ENDS = 16  # fewer ends say nothing yet
KEPT_ENDS = 1024  # counts are halved at so many, so that old traffic is forgotten
ROUNDING = 1e-9  # of products of shares, which must not make a bucket of a quantile that is just reached
FRESH = 8  # ends between two looks at what runs


def _bounds() -> list[int]:
    bounds = sorted({round(2 ** (i / OCTAVE)) for i in range(21 * OCTAVE)})
    return [*bounds, MAX_LENGTH]


BOUNDS = _bounds()  # a bucket holds the lengths above the bound before, up to its own


class LengthEstimate:
    """Quantiles of an answer's length. Times go with the number of buckets, and that only after something ended."""

    def __init__(self) -> None:
        self._ends = [0.0] * len(BOUNDS)
        self._cut = [0.0] * len(BOUNDS)  # seen so long, and no longer
        self._running: list[int] = []
        self._survival: list[float] | None = None
        self._known: dict[tuple[int, float], int | None] = {}
        self._new = 0
        self.ends = 0.0

    def add(self, length: int, *, ended: bool, running: Iterable[int] = ()) -> None:
        """An answer of `length` tokens ended by itself, or was cut there. `running`: lengths of those under way."""
        bucket = bisect_left(BOUNDS, length)
        if not ended:
            self._cut[bucket] += 1
            return
        self._ends[bucket] += 1
        self.ends += 1
        self._new += 1
        if self.ends >= KEPT_ENDS:
            self._halve()
        if self._new >= FRESH or self.ends == LEAST_ENDS:
            self._running, self._survival, self._new = list(running), None, 0

    def length(self, made: int, quantile: float) -> int | None:
        """Tokens that the share `quantile` of answers with `made` tokens does not exceed; None where none can be told:
        too few have ended, or too few so long ones."""
        if self.ends < LEAST_ENDS or quantile >= 1:
            return None
        first = bisect_left(BOUNDS, made + 1)
        key = first, quantile
        if self._survival is None:
            self._survival, self._known = self._estimate(), {}
        if key not in self._known:
            self._known[key] = self._reach(self._survival, first, quantile)
        return self._known[key]

    def _reach(self, survival: list[float], first: int, quantile: float) -> int | None:
        """The bound of the first bucket from `first` on that so large a share of those before it does not leave."""
        start = survival[first - 1] if first else 1.0
        if start == 0:
            return None  # longer than all that was seen
        for bucket in range(first, len(BOUNDS)):
            if survival[bucket] <= (1 - quantile) * start + ROUNDING:
                return BOUNDS[bucket]
        return None

    def _estimate(self) -> list[float]:
        """For each bucket the share of answers longer than it."""
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
