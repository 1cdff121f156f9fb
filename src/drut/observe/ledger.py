"""The step ledger: bytes and multiply-adds of each operation, its roofline time, and its measured time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Bandwidth = Callable[[int], float]  # bytes per second, by the bytes of the working set
READ = "read"


class Macs(NamedTuple):
    """Multiply-adds, or a peak of them per second, by operands: each class has a peak of its own.

    `int4`: codes of at most 4 bits with int8; `int8`: wider codes and entries of tables with int8; `floats`: floats.
    """

    int4: float = 0
    int8: float = 0
    floats: float = 0

    def __add__(self, other: Macs) -> Macs:  # type: ignore[override]
        return Macs(self.int4 + other.int4, self.int8 + other.int8, self.floats + other.floats)

    def __mul__(self, times: int) -> Macs:  # type: ignore[override]
        return Macs(self.int4 * times, self.int8 * times, self.floats * times)


@dataclass(frozen=True)
class Peaks:
    """The roof of this machine with the threads in use: bytes and multiply-adds per second."""

    bandwidth: Bandwidth
    macs: Macs

    def multiplying_s(self, macs: Macs) -> float:
        """Returns the seconds of multiply-adds, those of each class at its peak, one class after the other."""
        return macs.int4 / self.macs.int4 + macs.int8 / self.macs.int8 + macs.floats / self.macs.floats

    def floor_s(self, nbytes: int, macs: Macs, working_set: int) -> float:
        """Returns the roofline time in seconds: the slower of memory and multipliers, which work in parallel."""
        return max(nbytes / self.bandwidth(working_set), self.multiplying_s(macs))

    def floor_by_roof(self, nbytes: int, macs: Macs, working_set: int) -> dict[str, float]:
        """Returns `floor_s` by the roof that it is at: READ, or the classes of multiply-adds."""
        floor = self.floor_s(nbytes, macs, working_set)
        if floor > self.multiplying_s(macs):
            return {READ: floor}
        return {name: count / peak for name, count, peak in zip(Macs._fields, macs, self.macs, strict=True) if count}


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


def summed(floors: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the sum of roofline times by roof, the longest first."""
    total: dict[str, float] = {}
    for floor in floors:
        for roof, seconds in floor.items():
            total[roof] = total.get(roof, 0.0) + seconds
    return dict(sorted(total.items(), key=lambda item: -item[1]))


class LedgerEntry(NamedTuple):
    """One operation of a step. `actual_s` is None if it was not timed."""

    name: str
    layer: int
    nbytes: int
    macs: Macs
    actual_s: float


class LedgerLine(NamedTuple):
    """The sum of a step's operations of one kind. `floors`: the roofline time by roof, the longest first."""

    name: str
    calls: int
    nbytes: int
    macs: float
    floors: Mapping[str, float]
    actual_s: float

    @property
    def floor_s(self) -> float:
        return sum(self.floors.values())

    @property
    def roof(self) -> str:
        """The roofs that the operations are compared with, joined by `+`."""
        return "+".join(self.floors)

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
        old = lines.get(e.name, LedgerLine(name=e.name, calls=0, nbytes=0, macs=0, floors={}, actual_s=0.0))
        floors = summed((old.floors, peaks.floor_by_roof(e.nbytes, e.macs, working_set)))
        lines[e.name] = LedgerLine(name=e.name, calls=old.calls + 1, nbytes=old.nbytes + e.nbytes,
                                   macs=old.macs + sum(e.macs), floors=floors, actual_s=old.actual_s + e.actual_s)
    return StepLedger(rows, tuple(lines.values()), wall_s)
