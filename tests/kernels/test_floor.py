"""The floor of a step, taken of all operations together, is the ledger's sum over each."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.formats.encoding import encoding
from drut.kernels.cost import StepShape
from drut.kernels.kv import KvLayout
from drut.kernels.ops import Attention, Buffer, Embed, ExpertsDown, ExpertsGateUp, Head, Norm, Op, Project, Routes
from drut.kernels.outline import MatrixOutline, VectorOutline
from drut.kernels.roofline import StepRoofline
from drut.observe.ledger import LedgerEntry, Macs, Peaks, account, interpolated

PEAKS = Peaks(partial(interpolated, {1 << 10: 4e9, 1 << 14: 1e9}), Macs(int4=4e9, int8=3e9, floats=1e9))
X, Q = Buffer("x", 64), Buffer("q", 64)
NORM, ROUTES = Norm(VectorOutline(64), 1e-5), Routes("routes", 8, 2)


def matrix(name: str, n: int = 64, count: int = 1) -> MatrixOutline:
    enc = encoding(name)
    return MatrixOutline(n=n, k=64, encoding=enc, nbytes=count * n * enc.row_bytes(64), count=count)


def layer(index: int, window: int, weights: str) -> list[Op]:
    kv = KvLayout("bf16", 1, 2, 16, window=window)
    experts = {"layer": index, "x": X, "routes": ROUTES}
    return [Attention(layer=index, q=Q, out=Q, heads=4, kv=kv, scale=1.0, window=window),
            Project(index, Q, matrix(weights), X),
            ExpertsGateUp(**experts, norm=NORM, gate=matrix("Q8_0", 96, 8), up=matrix("Q8_0", 96, 8), out=Q),
            ExpertsDown(**experts, source=Q, down=matrix("Q4_0", 64, 8))]


OPS: list[Op] = [Embed(matrix("F16", 500), X),
                 *(op for i, (window, weights) in enumerate([(0, "Q4_0"), (16, "Q4_0"), (0, "F16"), (100, "Q4_0"),
                                                             (16, "Q8_0")]) for op in layer(i, window, weights)),
                 Head(X, NORM, matrix("Q8_0", 500))]
FLOOR = StepRoofline(OPS, PEAKS)
sequences = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 3000)).map(lambda s: (s[0], sum(s))), min_size=1,
                     max_size=5)


def ledger_s(shape: StepShape) -> float:
    entries = [LedgerEntry(type(op).__name__, 0, *op.cost(shape), 0.0) for op in OPS]
    return account(shape.rows, entries, 1.0, PEAKS).floor_s


@given(sequences, st.integers(0, 64))
@settings(deadline=None)
def test_it_is_the_ledgers(parts: list[tuple[int, int]], samples: int) -> None:
    shape = StepShape.over(parts, samples)
    assert FLOOR.seconds(shape) == pytest.approx(ledger_s(shape), rel=1e-12)


def test_operations_of_equal_rates_are_one() -> None:
    """Of the 22, the experts of all layers are alike, whatever was measured of each; so are two projections and the
    attention of two pairs of layers."""
    assert len({op.rate for op in OPS}) == 1 + 3 + 3 + 2 + 1
    assert OPS[3].cost(StepShape(1, 1, 1, 1, used_experts=(5, 0, 0, 0, 0))).bytes == 5 * 2 * 96 * 68
