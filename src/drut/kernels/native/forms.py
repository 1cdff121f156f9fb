"""Which form of rows an operation hands to those that read them: floats, bf16 or int8."""

from __future__ import annotations

from drut.formats.encoding import Encoding
from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.ops import Buffer
from drut.kernels.plan import Plan
from drut.kernels.weight import PAD, Matrix


def forms_of(plan: Plan) -> dict[ops.Op, int]:
    """The form of the rows that each attention and feed-forward hands to the projections that read them: what the
    projections' weights take, where all take the same and the producer's units of work are whole groups. Experts hand
    over in whichever form the weights take."""
    forms: dict[ops.Op, int] = dict.fromkeys(plan.ops, abi.FLOAT_FORM)
    readers: dict[ops.Op, list[ops.Op]] = {}
    source: dict[str, ops.Op] = {}  # by buffer, who filled it last
    pairs: dict[tuple[str, int], ops.Op] = {}
    for op in plan.ops:
        for name, value in vars(op).items():
            if isinstance(value, Buffer) and name != "out" and value.name in source:
                readers[source[value.name]].append(op)
        if isinstance(op, ops.ExpertsGateUp):
            pairs[op.out.name, op.layer] = op
        if isinstance(op, ops.Attention | ops.GateUp):
            source[op.out.name] = op
            readers[op] = []
    for op in plan.ops:
        if isinstance(op, ops.ExpertsDown):
            forms |= dict.fromkeys((op, pairs[op.source.name, op.layer]), _form(op.down.encoding))
    for producer, those in readers.items():
        whole = not isinstance(producer, ops.Attention) or producer.kv.head_dim % PAD == 0
        if whole and those and all(isinstance(r, ops.Project) and _takes_int8(r.weight) for r in those):
            forms |= dict.fromkeys((producer, *those), abi.INT8_FORM)
    return forms


def _form(enc: Encoding) -> int:
    """What matrices of an encoding take."""
    if not enc.is_float:
        return abi.INT8_FORM
    return abi.BRAIN_FORM if enc.name == "BF16" else abi.FLOAT_FORM


def _takes_int8(weight: Matrix) -> bool:
    """Rows as int8 in the order they have; the groups of another order hold other elements."""
    return not weight.encoding.is_float and weight.columns is None
