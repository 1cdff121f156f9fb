"""What is known of constraints, within a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from drut.constrain.constraint import Constraint

V = TypeVar("V")
BASE_BYTES, BYTES_PER_BYTE = 200_000, 100  # what a compiled grammar is charged, by its source (docs/measurements.md)


class Kept(Generic[V]):
    """A value for each constraint. Past `room` bytes the least recently used go, but for the last one. For one thread
    at a time."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._values: OrderedDict[tuple[str, str], V] = OrderedDict()  # least recently used first
        self.bytes = 0  # charged for what is kept

    def get(self, constraint: Constraint) -> V | None:
        """Counts as a use."""
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
