"""A plan: the operations of one step in order, in segments. Between segments the host may act.

A plan is recorded once from the model code, and step replay runs it for every batch: all inputs that change from step
to step are in the step descriptor. So a plan depends on model and KV format, never on the shape of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drut.kernels.cost import FREE, Cost, StepShape
from drut.kernels.ops import Op

BEFORE_HEAD = "before_head"
BEFORE_SAMPLE = "before_sample"


@dataclass(frozen=True)
class Segment:
    """Operations that run without the host. `stop` names the point after the last one, where the host may act."""

    ops: tuple[Op, ...]
    stop: str | None


@dataclass
class Recorder:
    """Records operations while model code runs."""

    _segments: list[Segment] = field(default_factory=list)
    _ops: list[Op] = field(default_factory=list)

    def add(self, op: Op) -> None:
        self._ops.append(op)

    def stop(self, name: str) -> None:
        """Ends a segment: the host may act before the next operation."""
        self._segments.append(Segment(tuple(self._ops), name))
        self._ops = []

    def finish(self) -> Plan:
        return Plan((*self._segments, Segment(tuple(self._ops), None)))


@dataclass(frozen=True)
class Plan:
    """The segments of one step."""

    segments: tuple[Segment, ...]

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(op for segment in self.segments for op in segment.ops)

    def cost(self, shape: StepShape) -> Cost:
        total = FREE
        for op in self.ops:
            total = total + op.cost(shape)
        return total
