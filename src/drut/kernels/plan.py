"""A plan: the operations of one step in order, in segments that end where the host may act.

Recorded once from the model code and valid for every batch: whatever changes from step to step is in the step
descriptor, so a plan is keyed by model and KV format, never by shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from drut.kernels.cost import Cost, StepShape
from drut.kernels.ops import Op

BEFORE_HEAD = "before_head"
BEFORE_SAMPLE = "before_sample"


@dataclass(frozen=True)
class Segment:
    """Operations with no need of the host between them. `stop` names what the host may do after the last one."""

    ops: tuple[Op, ...]
    stop: str | None


@dataclass
class Recorder:
    """Collects operations while model code runs."""

    _segments: list[Segment] = field(default_factory=list)
    _ops: list[Op] = field(default_factory=list)

    def add(self, op: Op) -> None:
        self._ops.append(op)

    def stop(self, name: str) -> None:
        """Ends a segment: a host with business there acts before what follows."""
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
        total = Cost(0, 0)
        for op in self.ops:
            total = total + op.cost(shape)
        return total
