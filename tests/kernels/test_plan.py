"""Plans and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from drut.kernels.cost import FREE, Cost, StepShape
from drut.kernels.kv import KvLayout
from drut.kernels.ops import Attention, Buffer, Embed, GateUp, Head, Project, Qkv, RopeTable, Sample
from drut.kernels.plan import BEFORE_HEAD, BEFORE_SAMPLE, Recorder
from drut.observe.ledger import Macs
from tests.kernels.conftest import Native
from tests.kernels.rig import Stored, blocks, encoding, floats

STEP = StepShape(rows=5, samples=2, kv_tokens=300, row_tokens=700)
KV = KvLayout("bf16", 3, 2, 32)


class Weight:
    """A matrix known by its size alone."""

    def __init__(self, n: int, k: int, nbytes: int, kind: str = "Q4_0") -> None:
        self.n, self.k, self.nbytes, self.encoding = n, k, nbytes, encoding(kind)


X, Q, SMALL, ROPE, INNER = (Buffer(*b) for b in [("x", 64), ("q", 128), ("k", 64), ("rope", 32), ("inner", 96)])
OPS = {
    Embed(Weight(100, 64, 100 * 36), X): Cost(5 * 36),
    RopeTable((1.0,), ROPE): FREE,
    # Three matrices, and 5 rows of 2 heads' keys and values of 32 bf16.
    Qkv(layer=0, x=X, norm=None, q_proj=Weight(128, 64, 10), k_proj=Weight(64, 64, 20), v_proj=Weight(64, 64, 40),
        rope=ROPE, q=Q, k=SMALL, v=SMALL, heads=4, kv=KV):
        Cost(70 + 5 * 2 * 2 * 32 * 2, Macs(int4=5 * 64 * (128 + 64 + 64))),
    # 300 tokens of keys and values read; each row's positions times 4 heads of 32, for scores and for values.
    Attention(layer=0, q=Q, out=Q, heads=4, kv=KV,
              scale=1.0): Cost(300 * 2 * 2 * 32 * 2, Macs(floats=700 * 4 * 32 * 2)),
    # With scales of 4 bytes; values are multiplied by two parts of each softmax weight.
    Attention(layer=0, q=Q, out=Q, heads=4, kv=KvLayout("int8", 3, 2, 32),
              scale=1.0): Cost(300 * 2 * 2 * (32 + 4), Macs(int8=700 * 4 * 32 * 3)),
    Project(0, Q, Weight(64, 128, 7), X): Cost(7, Macs(int4=5 * 64 * 128)),
    GateUp(layer=0, x=X, norm=None, gate=Weight(96, 64, 3), up=Weight(96, 64, 4), out=INNER):
        Cost(7, Macs(int4=5 * 2 * 96 * 64)),
    Head(X, None, Weight(100, 64, 9)): Cost(9, Macs(int4=2 * 100 * 64)),
    Sample(100): FREE,
}


def test_the_cost_of_each_operation() -> None:
    for op, cost in OPS.items():
        assert op.cost(STEP) == cost, op


@pytest.mark.parametrize(("operands", "kinds"), [
    ("int4", ["Q4_0", "Q4_1", "Q4_K", "Q3_K", "Q2_K", "TQ1_0", "TQ2_0", "int4-g32-f16", "int4z-g128-f16"]),
    ("int8", ["Q5_0", "Q6_K", "Q8_0", "int8-row-f32", "IQ4_NL", "IQ4_XS", "MXFP4", "nvfp4"]),
    ("floats", ["F32", "F16", "BF16", "fp8-row-f32"]),
])
def test_the_class_of_multiply_adds_by_encoding(operands: str, kinds: list[str]) -> None:
    """Entries of tables are wider than 4 bits."""
    for kind in kinds:
        assert Project(0, Q, Weight(64, 128, 7, kind), X).cost(STEP).macs == Macs(**{operands: 5 * 64 * 128}), kind


def test_a_plan_costs_what_its_operations_cost() -> None:
    recorder = Recorder()
    for op in OPS:
        recorder.add(op)
    plan = recorder.finish()
    assert plan.ops == tuple(OPS)
    assert plan.cost(STEP) == sum(OPS.values(), FREE)


def test_segments_end_where_the_host_may_act() -> None:
    first, second, third = list(OPS)[:3]
    recorder = Recorder()
    recorder.add(first)
    recorder.add(second)
    recorder.stop(BEFORE_HEAD)
    recorder.stop(BEFORE_SAMPLE)
    recorder.add(third)
    plan = recorder.finish()
    assert [s.ops for s in plan.segments] == [(first, second), (), (third,)]
    assert [s.stop for s in plan.segments] == [BEFORE_HEAD, BEFORE_SAMPLE, None]


def test_packed_weights_are_as_large_as_the_files(native: Native) -> None:
    """Of whole panels: at most 1.06 times the file's bytes; here the same."""
    rng = np.random.default_rng(0)
    for stored in (*(blocks(name, rng.integers(0, 16, (64, 96)), 1.0) for name in ("Q4_0", "Q4_1", "Q8_0")),
                   *(floats(np.zeros((64, 96)), name) for name in ("F32", "F16", "BF16"))):
        assert stored.on(native()).nbytes == stored.raw.nbytes, stored.encoding.name


def test_odd_shapes_are_padded_to_panels_and_groups(native: Native) -> None:
    matrix = Stored(encoding("F16"), np.zeros((33, 100), np.uint8), 33, 50).on(native())
    assert (matrix.n, matrix.k, matrix.nbytes) == (33, 50, 64 * 64 * 2)


def test_kv_bytes() -> None:
    """A page holds 16 tokens of keys and values of all layers."""
    assert KV.head_bytes == 2 * 16 * 32 * 2
    assert (KV.layer_bytes, KV.page_bytes, KV.token_bytes) == (2 * KV.head_bytes, 6 * KV.head_bytes, 3 * 2 * 2 * 32 * 2)
    assert KvLayout("fp32", 3, 2, 32).page_bytes == 2 * KV.page_bytes
