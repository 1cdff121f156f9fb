"""The taps that steps leave behind: rows of the target's residual streams, kept for the drafter that reads them."""

from __future__ import annotations

import numpy as np

from drut.kernels.ops import F32


class TapRows:
    """The taps of one sequence, of consecutive rows from position `start` on. For the engine's thread only."""

    def __init__(self, epoch: int, start: int, rows: F32) -> None:
        self.epoch, self.start, self.rows = epoch, start, rows

    @property
    def end(self) -> int:
        return self.start + len(self.rows)


class TapStore:
    """Keeps the latest taps of each sequence: at least `kept` rows, if there were as many."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._held: dict[int, TapRows] = {}

    def put(self, sequence: int, epoch: int, start: int, rows: F32) -> None:
        """Adds the taps of rows from position `start` on. Rows that were held from there on are replaced, because their
        tokens were other drafts; all are dropped if there is a gap, or if the sequence was preempted (`epoch`)."""
        held = self._held.get(sequence)
        if held is None or held.epoch != epoch or not held.start <= start <= held.end:
            self._held[sequence] = TapRows(epoch, start, rows)
            return
        self._held[sequence] = TapRows(epoch, held.start, np.concatenate([held.rows[: start - held.start], rows]))

    def get(self, sequence: int, start: int, end: int) -> F32 | None:
        """Returns the taps of the rows at positions `start` to `end`, (end - start, width); None if one is missing."""
        held = self._held.get(sequence)
        if held is None or start < held.start or end > held.end:
            return None
        return held.rows[start - held.start : end - held.start]

    def drop(self, sequence: int, before: int) -> None:
        """Drops taps of positions before `before`, but not of the latest rows."""
        held = self._held.get(sequence)
        if held is not None:
            first = max(min(before, held.end - self._kept), held.start)
            held.rows, held.start = held.rows[first - held.start :], first

    def forget(self, sequence: int) -> None:
        self._held.pop(sequence, None)
