"""A cache of values by constraint, with a maximum of bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from drut.constrain.constraint import Constraint

V = TypeVar("V")
BASE_BYTES, BYTES_PER_BYTE = 200_000, 100  # of a compiled grammar, by benchmarks/engine/structured.py


class ConstraintCache(Generic[V]):
    """A value for each constraint. Beyond `room` bytes the least recently used values are removed, except the newest.
    Threads: for one thread at a time."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._values: OrderedDict[tuple[str, str], V] = OrderedDict()  # least recently used first
        self.bytes = 0  # estimated bytes of the cached values

    def get(self, constraint: Constraint) -> V | None:
        """Returns the value of a constraint, or None; counts as a use."""
        key = constraint.kind, constraint.source
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, constraint: Constraint, value: V) -> None:
        key = constraint.kind, constraint.source
        self.bytes += 0 if key in self._values else _charge(key)
        self._values[key] = value
        self._values.move_to_end(key)
        while self.bytes > self._room and len(self._values) > 1:
            oldest, _ = self._values.popitem(last=False)
            self.bytes -= _charge(oldest)


def _charge(key: tuple[str, str]) -> int:
    return BASE_BYTES + BYTES_PER_BYTE * len(key[1])
