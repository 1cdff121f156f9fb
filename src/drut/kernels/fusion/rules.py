"""The rules of fusion, with the same bits.

A rule looks at the first of the operations at its place. What is between two operations vanishes only where nothing
else reads it; a norm joins all operations that read its rows, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np

from drut.kernels import ops
from drut.kernels.fusion.place import Place, Rule, access
from drut.kernels.ops import Activate, Add, Buffer, GateUp, Normalize, Op, Project, Qkv, StoreQkv
from drut.kernels.weight import Matrix


def qkv(place: Place) -> list[Op] | None:
    """Fuses three projections of the same rows with the norms, rope and store of their outputs."""
    match place.ops[:4]:
        case [Project(add=False, shared=None) as q, Project(add=False, shared=None) as k,
              Project(add=False, shared=None) as v, StoreQkv() as store] if (
                  (q.x, k.x, v.x) == (store.q, store.k, store.v) and q.source == k.source == v.source
                  and _distinct(q.source, q.x, k.x, v.x) and _same_columns(q.weight, k.weight, v.weight)):
            stored = {field.name: getattr(store, field.name) for field in fields(store)}
            return [Qkv(x=q.source, norm=None, q_proj=q.weight, k_proj=k.weight, v_proj=v.weight, **stored),
                    *place.ops[4:]]
    return None


def gate_up(place: Place) -> list[Op] | None:
    """Fuses gate, up and their activation; or up and its activation."""
    match place.ops[:3]:
        case [Project(add=False, shared=None) as gate, Project(add=False, shared=None) as up, Activate() as act] if (
                (gate.x, up.x) == (act.gate, act.up) and gate.source == up.source
                and _distinct(gate.source, gate.x, up.x, act.out) and _same_columns(gate.weight, up.weight)
                and place.dead((gate.x, up.x), 3)):
            return [_gate_up(gate.weight, up, act), *place.ops[3:]]
        case [Project(add=False, shared=None) as up, Activate(gate=None) as act, *_] if (
                up.x == act.up and _distinct(up.source, up.x, act.out) and place.dead((up.x,), 2)):
            return [_gate_up(None, up, act), *place.ops[2:]]
    return None


def _gate_up(gate: Matrix | None, up: Project, act: Activate) -> GateUp:
    return GateUp(layer=act.layer, x=up.source, norm=None, gate=gate, up=up.weight, out=act.out,
                  activation=act.activation)


def residual(place: Place) -> list[Op] | None:
    """Fuses a projection and the addition to the residual stream."""
    match place.ops[:2]:
        case [Project(add=False) as project, Add(norm=None) as add] if (
                project.x == add.source and _distinct(project.source, project.x, add.x)
                and place.dead((project.x,), 2)):
            return [replace(project, x=add.x, scale=add.scale, add=True), *place.ops[2:]]
    return None


# By operation that may norm what it reads, the field of those rows.
NORMED: Mapping[type[Op], str] = {ops.Qkv: "x", ops.GateUp: "x", ops.Route: "x", ops.ExpertsGateUp: "x",
                                  ops.Add: "source"}


@dataclass(frozen=True)
class NormInto:
    """Fuses a norm into the operations that read its rows, if all are of these types: each then computes the norm
    itself."""

    readers: frozenset[type[Op]]

    def __call__(self, place: Place) -> list[Op] | None:
        norm = place.ops[0]
        if not isinstance(norm, Normalize):
            return None
        rest = list(place.ops[1:])
        stale = False  # the norm's rows are no longer what they were
        for i, op in enumerate(rest):
            touched = access(op)
            if norm.out in touched.reads:
                taken = None if stale or norm.x in touched.writes else self._normed(op, norm)
                if taken is None:
                    return None
                rest[i] = taken
            elif norm.out in touched.writes:
                return rest
            stale |= norm.x in touched.writes
        return rest if place.dead((norm.out,), len(place.ops)) else None

    def _normed(self, op: Op, norm: Normalize) -> Op | None:
        """Returns `op` over the rows before the norm; None if it needs the rows after the norm."""
        if type(op) not in self.readers or vars(op)["norm"] is not None:
            return None
        taken: Op = replace(op, **{"norm": norm.norm, NORMED[type(op)]: norm.x})  # type: ignore[type-var]
        return None if norm.out in access(taken).reads | access(taken).writes else taken


def _distinct(*buffers: Buffer) -> bool:
    return len(set(buffers)) == len(buffers)


def _same_columns(first: Matrix, *others: Matrix) -> bool:
    """Returns True if all matrices read the elements of rows in the same order."""
    return all(first.columns is other.columns or np.array_equal(first.columns, other.columns)  # type: ignore[arg-type]
               for other in others)


EVERY: tuple[Rule, ...] = (qkv, gate_up, residual, NormInto(frozenset(NORMED)))
