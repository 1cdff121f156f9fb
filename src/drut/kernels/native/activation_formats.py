"""The activation format between a producer operation and its consumers: floats, bf16 or int8."""

from __future__ import annotations

from drut.formats.encoding import Encoding
from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.ops import Buffer
from drut.kernels.plan import Plan
from drut.kernels.weight import PAD, Matrix


def activation_formats(plan: Plan) -> dict[ops.Op, int]:
    """Returns the format in which each operation writes or reads the rows between operations.

    Attention and feed-forward write int8 if all projections that read their rows take int8 in the same groups, and if
    the producer's units of work are whole groups; else floats. Experts use the format that their weights take.
    """
    formats: dict[ops.Op, int] = dict.fromkeys(plan.ops, abi.FLOAT_FORMAT)
    consumers: dict[ops.Op, list[ops.Op]] = {}
    producer_of: dict[str, ops.Op] = {}  # by buffer: the operation that wrote it last
    gate_ups: dict[tuple[str, int], ops.Op] = {}
    for op in plan.ops:
        for name, value in vars(op).items():
            if isinstance(value, Buffer) and name != "out" and value.name in producer_of:
                consumers[producer_of[value.name]].append(op)
        if isinstance(op, ops.ExpertsGateUp):
            gate_ups[op.out.name, op.layer] = op
        if isinstance(op, ops.Attention | ops.GateUp):
            producer_of[op.out.name] = op
            consumers[op] = []
    for op in plan.ops:
        if isinstance(op, ops.ExpertsDown):
            formats |= dict.fromkeys((op, gate_ups[op.source.name, op.layer]), _format_of(op.down.encoding))
    for producer, readers in consumers.items():
        wanted = {_stored_format(r.weight) if isinstance(r, ops.Project) else abi.FLOAT_FORMAT for r in readers}
        if len(wanted) == 1 and _whole_groups(producer, *wanted):
            formats |= dict.fromkeys((producer, *readers), *wanted)
    return formats


def _format_of(enc: Encoding) -> int:
    """Returns the format that matrices of an encoding read."""
    if not enc.is_float:
        return abi.WIDE_FORMAT if enc.scaled_by_row else abi.INT8_FORMAT
    return abi.BF16_FORMAT if enc.name == "BF16" else abi.FLOAT_FORMAT


def _stored_format(weight: Matrix) -> int:
    """Returns the format in which a producer may store the rows that the weight reads: floats if it has another column
    order, because its groups have other elements, or takes no int8."""
    return abi.FLOAT_FORMAT if weight.encoding.is_float or weight.columns is not None else _format_of(weight.encoding)


def _whole_groups(producer: ops.Op, form: int) -> bool:
    """Returns whether the units of work of the producer are whole groups of activations: of attention heads."""
    group = 2 * PAD if form == abi.WIDE_FORMAT else PAD
    return not isinstance(producer, ops.Attention) or producer.kv.head_dim % group == 0
