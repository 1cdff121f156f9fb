"""A plan's plain twin: what fused operations do in one go, as operations of their own with a buffer between them.

The norm before projections, Q, K, V, gate, up, the activation and the residual sum are apart then, and each projection
makes int8 of its own input. Attention still hands over int8, and experts and head stay as they are. The bits are the
same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import fields

from drut.kernels.ops import Activate, Add, Buffer, GateUp, Norm, Normalize, Op, Project, Qkv, StoreQkv
from drut.kernels.plan import Plan, Segment
from drut.kernels.weight import Matrix


def unfused(plan: Plan) -> Plan:
    """The same step in more operations."""
    return Plan(tuple(Segment(tuple(part for op in s.ops for part in _parts(op)), s.stop) for s in plan.segments))


def _parts(op: Op) -> Iterator[Op]:
    if isinstance(op, Qkv):
        y = yield from _normed(op.layer, op.x, op.norm)
        for out, weight in ((op.q, op.q_proj), (op.k, op.k_proj), (op.v, op.v_proj)):
            yield Project(op.layer, y, weight, out, add=False)
        yield StoreQkv(**{field.name: getattr(op, field.name) for field in fields(StoreQkv)})
    elif isinstance(op, GateUp):
        y = yield from _normed(op.layer, op.x, op.norm)
        up = yield from _projected(op.layer, y, op.up, f"{op.out.name}_up")
        gate = None if op.gate is None else (yield from _projected(op.layer, y, op.gate, f"{op.out.name}_gate"))
        yield Activate(op.layer, gate, up, op.out, op.activation)
    elif isinstance(op, Project) and op.add and op.shared is None:
        y = yield from _projected(op.layer, op.source, op.weight, "projected")
        yield Add(op.layer, y, None, op.x, op.scale)
    else:
        yield op


def _normed(layer: int, x: Buffer, norm: Norm | None) -> Generator[Op, None, Buffer]:
    if norm is None:
        return x
    out = Buffer("normed", x.width)
    yield Normalize(layer, x, norm, out)
    return out


def _projected(layer: int, source: Buffer, weight: Matrix, name: str) -> Generator[Op, None, Buffer]:
    out = Buffer(name, weight.n)
    yield Project(layer, source, weight, out, add=False)
    return out
