"""The step ledger: bytes and multiply-adds of each operation, its roofline time, and its measured time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Bandwidth = Callable[[int], float]  # bytes per second, by the bytes of the working set


@dataclass(frozen=True)
class Peaks:
    """The roof of this machine with the threads in use: bytes and multiply-adds per second."""

    bandwidth: Bandwidth
    int8_macs: float
    float_macs: float

    def floor_s(self, nbytes: int, macs: int, float_macs: int, working_set: int) -> float:
        """Returns the roofline time in seconds: the slower of memory and multipliers, which work in parallel."""
        return self.at(working_set)(nbytes, macs, float_macs)

    def multiplying_s(self, macs: int, float_macs: int) -> float:
        """Returns the seconds of `macs` multiply-adds, `float_macs` of them on floats."""
        return (macs - float_macs) / self.int8_macs + float_macs / self.float_macs

    def at(self, working_set: int) -> Callable[[int, int, int], float]:
        """Returns `floor_s` for operations of steps that read `working_set` bytes."""
        bandwidth = self.bandwidth(working_set)

        def floor_s(nbytes: int, macs: int, float_macs: int) -> float:
            return max(nbytes / bandwidth, self.multiplying_s(macs, float_macs))

        return floor_s


def interpolated(read: Mapping[int, float], working_set: int) -> float:
    """Returns the bandwidth for a working set of `working_set` bytes from `read`, the bandwidth of measured sizes. The
    time per byte is interpolated; outside of the measured sizes the nearest one is used."""
    sizes = sorted(read)
    if working_set <= sizes[0]:
        return read[sizes[0]]
    for small, large in pairwise(sizes):
        if working_set <= large:
            part = (working_set - small) / (large - small)
            return 1 / ((1 - part) / read[small] + part / read[large])
    return read[sizes[-1]]


class LedgerEntry(NamedTuple):
    """One operation of a step. `actual_s` is None if it was not timed."""

    name: str
    layer: int
    nbytes: int
    macs: int
    float_macs: int
    actual_s: float


class LedgerLine(NamedTuple):
    """The sum of a step's operations of one kind."""

    name: str
    calls: int
    nbytes: int
    macs: int
    floor_s: float
    actual_s: float

    @property
    def share(self) -> float:
        """The share of the roof: 1 means that the roofline time was reached."""
        return self.floor_s / self.actual_s if self.actual_s > 0 else 0.0


@dataclass(frozen=True)
class StepLedger:
    """A step by kinds of operations, in their order; `wall_s` is the time that the caller waited."""

    rows: int
    lines: tuple[LedgerLine, ...]
    wall_s: float

    @property
    def floor_s(self) -> float:
        return sum(line.floor_s for line in self.lines)

    @property
    def actual_s(self) -> float:
        return sum(line.actual_s for line in self.lines)

    @property
    def share(self) -> float:
        """The share of the roof for the whole step, including the time outside of operations."""
        return self.floor_s / self.wall_s

    @property
    def gap_s(self) -> float:
        """The time of the step outside of operations."""
        return self.wall_s - self.actual_s


def account(rows: int, entries: Iterable[LedgerEntry], wall_s: float, peaks: Peaks) -> StepLedger:
    """Sums the operations of one step by kind. The working set of the bandwidth is all that the step reads."""
    entries = list(entries)
    working_set = sum(e.nbytes for e in entries)
    lines: dict[str, LedgerLine] = {}
    for e in entries:
        floor = peaks.floor_s(e.nbytes, e.macs, e.float_macs, working_set)
        old = lines.get(e.name, LedgerLine(name=e.name, calls=0, nbytes=0, macs=0, floor_s=0.0, actual_s=0.0))
        lines[e.name] = LedgerLine(name=e.name, calls=old.calls + 1, nbytes=old.nbytes + e.nbytes,
                                   macs=old.macs + e.macs,
                                   floor_s=old.floor_s + floor, actual_s=old.actual_s + e.actual_s)
    return StepLedger(rows, tuple(lines.values()), wall_s)
