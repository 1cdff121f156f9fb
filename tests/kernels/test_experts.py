"""Routers and experts: against the oracle, and the same bits in any batch, with any threads and instruction set."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.kernels.backend import Backend
from drut.kernels.numpy.experts import choose
from drut.kernels.ops import (
    Buffer,
    Embed,
    ExpertsDown,
    ExpertsGateUp,
    GateUp,
    Norm,
    Project,
    Route,
    Routes,
    Routing,
    StepShape,
)  # fmt: skip
from drut.observe.ledger import Macs
from tests.kernels.conftest import Native
from tests.kernels.rig import (
    F32,
    Ran,
    Stored,
    assert_same_bits,
    filler_head,
    floats,
    oracle,
    random_matrix,
    recorded,
    usable_isas,
)  # fmt: skip

HIDDEN, ROWS = 64, 230
ROUTINGS = {
    "softmax": Routing(9, 3),
    "softmax, not normalized": Routing(9, 3, normalize=False),
    "sigmoid": Routing(20, 5, sigmoid=True, scale=2.5),
    "sigmoid, groups": Routing(12, 4, sigmoid=True, groups=4, kept_groups=2),
    "one": Routing(17, 1),
    "all": Routing(4, 4),
}
CORRECTED = ("sigmoid", "sigmoid, groups")


@dataclass
class Layer:
    """A layer's weights as a file has them, and what is fed to it; token i takes row i of `x`."""

    routing: Routing
    encoding: str = "Q8_0"
    width: int = 96
    activation: str = "silu"
    biased: bool = False
    shared: bool = False
    corrected: bool = False
    x: F32 = field(default_factory=lambda: np.random.default_rng(0).standard_normal((ROWS, HIDDEN)).astype(np.float32))

    def ready(self, backend: Backend) -> tuple[Ran, Buffer]:
        rng, how, enc = np.random.default_rng(1), self.routing, self.encoding
        router = random_matrix(rng, "F32", how.experts, HIDDEN)
        gate, up = (self._stack(rng, backend, self.width, HIDDEN) for _ in range(2))
        down = self._stack(rng, backend, HIDDEN, self.width)
        norm = Norm(backend.vector(rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32) / 8), 1e-5)
        x, routes = Buffer("x", HIDDEN), Routes("routes", how.experts, how.top_k)
        inner = Buffer("inner_experts", self.width, how.top_k)

        def vector(size: int):
            return backend.vector(rng.uniform(0, 1, size).astype(np.float32))

        route = Route(layer=0, x=x, norm=norm, weight=router.on(backend), routing=how, routes=routes,
                      correction=vector(how.experts) if self.corrected else None,
                      shared_gate=vector(HIDDEN) if self.shared else None)
        ops = [Embed(floats(self.x).on(backend), x), route,
               ExpertsGateUp(layer=0, x=x, norm=norm, gate=gate, up=up, routes=routes, out=inner,
                             activation=self.activation),
               ExpertsDown(0, inner, down, routes, x)]
        if self.shared:
            wide = Buffer("inner_shared", 32)
            inner = [random_matrix(rng, enc, 32, HIDDEN).on(backend) for _ in range(2)]
            ops.insert(3, GateUp(0, x, norm, *inner, wide))
            ops.append(Project(0, wide, random_matrix(rng, enc, HIDDEN, 32).on(backend), x, shared=routes))
        return Ran(backend, recorded(*ops, filler_head(backend, x)), rows=ROWS, pages=-(-ROWS // 16)), x

    def _stack(self, rng: np.random.Generator, backend: Backend, n: int, k: int):
        stored: list[Stored] = [random_matrix(rng, self.encoding, n, k) for _ in range(self.routing.experts)]
        bias = rng.standard_normal((len(stored), n)).astype(np.float32) if self.biased else None
        return backend.stack(stored[0].encoding, [s.raw for s in stored], len(stored), n, k, bias=bias)

    def values(self, backend: Backend, tokens: range = range(ROWS)) -> F32:
        ran, x = self.ready(backend)
        ran.run(tokens)
        return ran.read(x)


LAYERS = {
    **{name: Layer(how, corrected=name in CORRECTED) for name, how in ROUTINGS.items()},
    **{enc: Layer(ROUTINGS["softmax"], enc) for enc in ("F32", "F16", "BF16", "Q4_0", "Q4_1")},
    "odd width": Layer(ROUTINGS["softmax"], "F32", width=70, biased=True, activation="clamped_swiglu"),
    "as gpt-oss": Layer(ROUTINGS["softmax"], biased=True, activation="clamped_swiglu"),
    "as qwen2-moe": Layer(ROUTINGS["softmax, not normalized"], shared=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_close_to_the_oracle(native: Native, name: str) -> None:
    """The experts are the same; an activation at a rounding boundary may fall to the other side."""
    layer = LAYERS[name]
    actual, expected = layer.values(native()), layer.values(oracle())
    error = np.abs(actual - expected).max(axis=1) / np.abs(expected).max(axis=1)
    exact = layer.encoding in ("F32", "F16")
    assert np.median(error) < (2e-6 if exact else 1e-4)
    assert error.max() < (1e-4 if exact else 3e-2)


@pytest.mark.parametrize("name", LAYERS)
def test_the_same_bits_however_it_runs(native: Native, name: str) -> None:
    layer = LAYERS[name]
    expected = layer.values(native("portable", 1, "eager"))
    for way in [(isa, 2, "replay") for isa in usable_isas()] + [("auto", n, "replay") for n in (1, 3, 5)]:
        assert_same_bits(layer.values(native(*way)), expected, str(way))


@pytest.mark.parametrize("backend_name", ["native", "numpy"])
@pytest.mark.parametrize("name", ["sigmoid", "one", "BF16", "as gpt-oss", "as qwen2-moe"])
def test_a_row_does_not_depend_on_its_company(native: Native, name: str, backend_name: str) -> None:
    layer = LAYERS[name]
    ran, x = layer.ready(native() if backend_name == "native" else oracle())
    ran.run(range(ROWS))
    whole = ran.read(x)
    for start, end in ((0, 1), (7, 9), (100, 104), (33, 38), (5, 110)):
        ran.run(range(start, end))
        assert_same_bits(ran.read(x), whole[start:end], f"rows {start} to {end}")


def test_rows_are_counted_by_expert(native: Native) -> None:
    layer = LAYERS["softmax"]
    for backend in (native(), oracle()):
        ran, _ = layer.ready(backend)
        ran.run(range(40))
        ran.run([3])
        loads = ran.executable.expert_loads()
        assert list(loads) == [0]
        assert loads[0].sum() == 41 * layer.routing.top_k
        assert ran.executable.used_experts() == (layer.routing.top_k,)


def test_only_used_experts_are_paid_for() -> None:
    ran, _ = Layer(ROUTINGS["sigmoid"], "F32").ready(oracle())
    op = next(op for op in ran.executable._plan.ops if isinstance(op, ExpertsDown))
    one = op.down.nbytes // op.down.count
    shape = StepShape(rows=8, samples=1, kv_tokens=8, row_tokens=8)
    assert op.cost(shape._replace(used_experts=(17,))).bytes == 17 * one
    assert op.cost(shape._replace(rows=1)).bytes == 5 * one
    assert 5 * one < op.cost(shape).bytes < 20 * one
    assert op.cost(shape).macs == Macs(floats=8 * 5 * HIDDEN * 96)


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, float("nan"), float("-inf")]), min_size=8, max_size=8))
def test_the_chosen_are_distinct_and_ties_go_to_the_lower_id(logits: list[float]) -> None:
    row = np.array([logits], np.float32)
    with np.errstate(invalid="ignore"):
        routed = choose(Routing(8, 4), row, None, np.ones((1, 1), np.float32))
    ids = routed.expert[0].tolist()
    known = [v if v == v else -np.inf for v in logits]
    assert len(set(ids)) == 4
    if not np.isnan(row).any():
        assert ids == sorted(range(8), key=lambda i: (-known[i], i))[:4]


def test_the_kernels_choose_as_the_oracle_does_among_equals(native: Native) -> None:
    """Rows of zeros have equal logits everywhere; NaN and infinite rows choose something and harm no other row."""
    layer = replace(LAYERS["softmax"], encoding="F32", x=LAYERS["softmax"].x.copy())
    clean = layer.values(native())
    layer.x[3], layer.x[5], layer.x[9, 2] = 0, np.nan, np.inf
    for backend in (native(), oracle()):
        values = layer.values(backend)
        assert np.isfinite(np.delete(values, [5, 9], axis=0)).all()
        assert not np.isfinite(values[5]).any()
    values = layer.values(native())
    assert_same_bits(np.delete(values, [3, 5, 9], axis=0), np.delete(clean, [3, 5, 9], axis=0))
    expected = layer.values(oracle())[3]
    assert np.abs(values[3] - expected).max() <= 1e-6 * np.abs(expected).max()
