"""The place in a plan where a fusion rule is tried, and the buffers that are still read after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from drut.kernels import ops
from drut.kernels.ops import Buffer, Op

# By operation, the fields whose buffers it fills without reading them.
FILLS: Mapping[type[Op], tuple[str, ...]] = {
    ops.Embed: ("x",), ops.RopeTable: ("rope",), ops.Normalize: ("out",), ops.Project: ("x",), ops.Qkv: ("q", "k", "v"),
    ops.StoreQkv: (), ops.Attention: ("out",), ops.GateUp: ("out",), ops.Activate: ("out",), ops.Add: (),
    ops.Tap: (), ops.Route: (), ops.ExpertsGateUp: ("out",), ops.ExpertsDown: (), ops.Head: (), ops.Sample: (),
}
# By operation, the fields whose buffers it reads and changes.
CHANGES: Mapping[type[Op], tuple[str, ...]] = {
    ops.StoreQkv: ("q", "k", "v"), ops.Add: ("x",), ops.ExpertsDown: ("x",), ops.Tap: ("out",),
}


class Access(NamedTuple):
    """The buffers that an operation reads, and the buffers that it writes."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


def access(op: Op) -> Access:
    """Returns the buffers that `op` reads and writes: all of them if it has no entry in `FILLS`."""
    fields = {name: value for name, value in vars(op).items() if isinstance(value, Buffer)}
    if type(op) not in FILLS:
        return Access(frozenset(fields.values()), frozenset(fields.values()))
    adds = isinstance(op, ops.Project) and op.add
    fills = () if adds else FILLS[type(op)]
    changes = ("x",) if adds else CHANGES.get(type(op), ())
    reads = frozenset(value for name, value in fields.items() if name not in fills)
    return Access(reads, frozenset(fields[name] for name in (*fills, *changes)))


class Place(NamedTuple):
    """The operations from one place on to the end of the segment, and all operations of later segments."""

    ops: Sequence[Op]
    later: Sequence[Op]

    def dead(self, buffers: Sequence[Buffer], count: int) -> bool:
        """True if no later operation reads what the first `count` operations write to `buffers`."""
        return not any(self._read_after(buffer, count) for buffer in buffers)

    def _read_after(self, buffer: Buffer, count: int) -> bool:
        for op in chain(self.ops[count:], self.later):
            touched = access(op)
            if buffer in touched.reads:
                return True
            if buffer in touched.writes:
                return False
        return False


Rule = Callable[[Place], list[Op] | None]  # what `Place.ops` become; None where the rule does not apply
