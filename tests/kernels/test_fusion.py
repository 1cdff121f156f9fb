"""Each rule of fusion: the same bits as what it replaces, on every instruction set and in NumPy; where none applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from drut.kernels.backend import Backend
from drut.kernels.cost import StepShape
from drut.kernels.fusion import Rule, fused
from drut.kernels.fusion.rules import EVERY, NormInto, gate_up, qkv, residual
from drut.kernels.kv import PAGE_TOKENS, KvLayout
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.ops import (
    Activate,
    Add,
    Buffer,
    Embed,
    ExpertsGateUp,
    GateUp,
    Norm,
    Normalize,
    Op,
    Project,
    Qkv,
    RopeTable,
    Route,
    Routes,
    Routing,
    StoreQkv,
)  # fmt: skip
from drut.kernels.plan import Plan, Segment
from tests.kernels.rig import (
    NO_KV,
    Ran,
    assert_same_bits,
    encoding,
    filler_head,
    floats,
    oracle,
    random_matrix,
    recorded,
    usable_isas,
)  # fmt: skip

HIDDEN, WIDE = 96, 70  # one is not whole panels
ROWS = (1, 2, 5, 33)
STEP = StepShape(rows=5, samples=2, kv_tokens=300, row_tokens=700)
X, Y, SUM, ADDED = (Buffer(name, HIDDEN) for name in ("x", "y", "sum", "added"))
GATE, UP, INNER = (Buffer(name, WIDE) for name in ("gate", "up", "inner"))
Q, K, V, ROPE = Buffer("q", 96), Buffer("k", 32), Buffer("v", 32), Buffer("rope", 16)
ROUTES = Routes("routes", 9, 3)


@pytest.fixture(params=["numpy", *usable_isas()])
def backend(request: pytest.FixtureRequest) -> Backend:
    return oracle() if request.param == "numpy" else request.getfixturevalue("native")(request.param)


@dataclass
class Maker:
    """Random weights on a backend, in turn; matrices in `name`."""

    backend: Backend
    name: str

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(7)

    def matrix(self, n: int, k: int = HIDDEN, name: str = "", bias: bool = False) -> Any:
        stored = random_matrix(self._rng, name or self.name, n, k)
        biases = self._rng.standard_normal(n).astype(np.float32) if bias else None
        return stored._replace(bias=biases).on(self.backend)

    def project(self, source: Buffer, out: Buffer, **more: Any) -> Project:
        return Project(layer=0, source=source, weight=self.matrix(out.width, source.width, bias=True), x=out, add=False,
                       **more)

    def vector(self, size: int) -> Any:
        return self.backend.vector(self._rng.uniform(0.5, 1.5, size).astype(np.float32))

    def norm(self, size: int = HIDDEN, centred: bool = False) -> Norm:
        return Norm(self.vector(size), 1e-5, centred, self.vector(size) if centred else None)

    def stack(self, n: int) -> Any:
        stored = [random_matrix(self._rng, self.name, n, HIDDEN) for _ in range(ROUTES.experts)]
        return self.backend.stack(stored[0].encoding, [s.raw for s in stored], len(stored), n, HIDDEN)

    def route(self, x: Buffer) -> Route:
        return Route(layer=0, x=x, norm=None, weight=self.matrix(ROUTES.experts, name="F32"),
                     routing=Routing(ROUTES.experts, ROUTES.top_k), routes=ROUTES, shared_gate=self.vector(HIDDEN))


def store_qkv(kv: KvLayout, norms: tuple[Norm, Norm] | None = None, **more: Any) -> StoreQkv:
    q_norm, k_norm = norms or (None, None)
    return StoreQkv(**{"rope": ROPE} | more, layer=0, q=Q, k=K, v=V, heads=6, kv=kv, q_norm=q_norm, k_norm=k_norm)


def parts_of_qkv(m: Maker) -> list[Op]:
    return [m.project(X, out) for out in (Q, K, V)]


def normed_readers(m: Maker) -> list[Op]:
    """All that reads what a router and experts read."""
    experts = ExpertsGateUp(layer=0, x=Y, norm=None, gate=m.stack(WIDE), up=m.stack(WIDE), routes=ROUTES,
                            out=Buffer("inner_experts", WIDE, ROUTES.top_k))
    shared = GateUp(layer=0, x=Y, norm=None, gate=m.matrix(WIDE), up=m.matrix(WIDE), out=INNER)
    return [Normalize(0, X, m.norm(), Y), m.route(Y), experts, shared]


class Case(NamedTuple):
    """A rule, what it is applied to, the kinds of what comes out, and the buffers that no longer are."""

    rule: Rule
    parts: Callable[[Maker], list[Op]]
    becomes: tuple[type[Op], ...]
    gone: tuple[Buffer, ...] = ()
    kv: KvLayout = NO_KV


KV = {dtype: KvLayout(dtype, 1, 2, 16) for dtype in ("bf16", "int8", "fp32")}
NORMS = NormInto(frozenset({Qkv, GateUp, Route, ExpertsGateUp, Add}))
CASES = {
    "qkv": Case(qkv, lambda m: [*parts_of_qkv(m), store_qkv(KV["bf16"])], (Qkv,), kv=KV["bf16"]),
    "qkv, head norms": Case(qkv, lambda m: [*parts_of_qkv(m), store_qkv(KV["int8"], (m.norm(16), m.norm(16)))], (Qkv,),
                            kv=KV["int8"]),
    "qkv, wide norms": Case(
        qkv, lambda m: [*parts_of_qkv(m), store_qkv(KV["fp32"], (m.norm(96), m.norm(32)), wide_norm=True, rope=None,
                                                    growth=(0.25, 4))], (Qkv,), kv=KV["fp32"]),
    "gate up": Case(gate_up, lambda m: [m.project(X, GATE), m.project(X, UP), Activate(0, GATE, UP, INNER)], (GateUp,),
                    (GATE, UP)),
    "up": Case(gate_up, lambda m: [m.project(X, UP), Activate(0, None, UP, INNER, "gelu_tanh")], (GateUp,), (UP,)),
    "residual": Case(residual, lambda m: [m.project(X, ADDED), Add(0, ADDED, None, SUM, 0.3)], (Project,), (ADDED,)),
    "residual of the shared expert": Case(
        residual, lambda m: [m.route(X), m.project(X, ADDED, shared=ROUTES), Add(0, ADDED, None, SUM)],
        (Route, Project), (ADDED,)),
    "norm into qkv": Case(
        NORMS, lambda m: [Normalize(0, X, m.norm(), Y), Qkv(
            layer=0, x=Y, norm=None, q_proj=m.matrix(96), k_proj=m.matrix(32), v_proj=m.matrix(32), rope=ROPE, q=Q, k=K,
            v=V, heads=6, kv=KV["bf16"])], (Qkv,), (Y,), kv=KV["bf16"]),
    "norm into gate up": Case(
        NORMS, lambda m: [Normalize(0, X, m.norm(centred=True), Y), GateUp(
            layer=0, x=Y, norm=None, gate=m.matrix(WIDE), up=m.matrix(WIDE), out=INNER)], (GateUp,), (Y,)),
    "norm into router and experts": Case(NORMS, normed_readers, (Route, ExpertsGateUp, GateUp), (Y,)),
    "norm into a sum": Case(NORMS, lambda m: [Normalize(0, X, m.norm(), Y), Add(0, Y, None, SUM, 0.3)], (Add,), (Y,)),
}


def seen(backend: Backend, plan: Plan, case: Case) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
    """What steps of each number of rows leave in the pages and in the buffers that stay."""
    ran = Ran(backend, plan, rows=max(ROWS), kv=case.kv, pages=3)
    written = {buffer for op in plan.ops[3:] for buffer in vars(op).values() if isinstance(buffer, Buffer)} - {ROPE}
    for rows in ROWS:
        ran.run(range(rows), pages=range(-(-rows // PAGE_TOKENS)))
        pages = ran.pool.data.view(np.uint8)  # type: ignore[attr-defined]
        yield {buffer.name: ran.read(buffer) for buffer in written if buffer.copies == 1} | {"pages": pages.copy()}
    if not isinstance(backend, NumpyBackend):
        buffers = ran.executable.workspace.buffers.keys()  # type: ignore[attr-defined]
        assert buffers >= written
        assert buffers.isdisjoint(case.gone) == written.isdisjoint(case.gone)


@pytest.mark.parametrize("name", ["F32", "BF16", "Q4_0"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_rule_changes_no_bit(backend: Backend, case: Case, name: str) -> None:
    rng, maker = np.random.default_rng(8), Maker(backend, name)
    rows = [floats(rng.standard_normal((max(ROWS), HIDDEN))).on(backend) for _ in range(2)]
    parts = case.parts(maker)
    plain = recorded(Embed(rows[0], X), Embed(rows[1], SUM), RopeTable(tuple(2.0**-i for i in range(8)), ROPE), *parts,
                     filler_head(backend, X))
    plan = fused(plain, [case.rule])
    assert tuple(type(op) for op in plan.ops[3:-1]) == case.becomes
    touched = {buffer for op in plan.ops for buffer in vars(op).values()}
    assert touched.isdisjoint(case.gone)
    assert plan.cost(STEP) == plain.cost(STEP)
    for apart, together in zip(seen(backend, plain, case), seen(backend, plan, case), strict=True):
        for buffer, values in together.items():
            if buffer == "pages":
                assert (values == apart[buffer]).all()
            elif not (buffer in "kv" and backend.name == "numpy"):  # which it leaves as they were projected
                assert_same_bits(values, apart[buffer], buffer)


class Weight:
    """A matrix known by its sizes and the order of its columns."""

    def __init__(self, n: int = HIDDEN, columns: Any = None) -> None:
        self.n, self.k, self.nbytes, self.encoding, self.columns = n, HIDDEN, 100, encoding("Q4_0"), columns


@dataclass(frozen=True)
class Tap(Op):
    """Looks at a buffer: an operation that the rules do not know."""

    x: Buffer


W, FIXED = Weight(), Norm(None, 1e-5)  # type: ignore[arg-type]
NORMALIZE, NORM_READER = Normalize(0, X, FIXED, Y), GateUp(layer=0, x=Y, norm=None, gate=W, up=W, out=INNER)
TO_GATE, TO_UP = (Project(0, X, W, buffer, add=False) for buffer in (GATE, UP))
ACTIVATE = Activate(0, GATE, UP, INNER)
TO_SUM, ADD = Project(0, X, W, ADDED, add=False), Add(0, ADDED, None, SUM)
TO_Q, TO_K, TO_V = (Project(0, X, W, buffer, add=False) for buffer in (Q, K, V))
TURNED = Weight(columns=np.arange(HIDDEN)[::-1])
KEPT = {
    "the gate is read later": [TO_GATE, TO_UP, ACTIVATE, Tap(GATE)],
    "up is read by a sum later": [TO_UP, Activate(0, None, UP, INNER), Add(0, UP, None, INNER)],
    "a look in between": [TO_GATE, TO_UP, Tap(UP), ACTIVATE],
    "gate and up of other rows": [TO_GATE, replace(TO_UP, source=SUM), ACTIVATE],
    "gate and up by other columns": [TO_GATE, replace(TO_UP, weight=TURNED), ACTIVATE],
    "up's rows are overwritten": [TO_UP, Activate(0, None, UP, X)],
    "a projection is added to its own rows": [TO_SUM, replace(ADD, x=X)],
    "q overwrites what k reads": [replace(TO_Q, x=X), TO_K, TO_V, replace(store_qkv(KV["bf16"]), q=X)],
    "gate overwrites what up reads": [replace(TO_GATE, x=X), TO_UP, replace(ACTIVATE, gate=X)],
    "the sum is read later": [TO_SUM, ADD, Tap(ADDED)],
    "another is added": [TO_SUM, replace(ADD, source=UP)],
    "q, k and v by other columns": [TO_Q, replace(TO_K, weight=TURNED), TO_V, store_qkv(KV["bf16"])],
    "q, k and v of other rows": [TO_Q, TO_K, replace(TO_V, source=SUM), store_qkv(KV["bf16"])],
    "a projection reads the norm": [NORMALIZE, NORM_READER, Project(0, Y, W, ADDED, add=False)],
    "a look at the norm": [NORMALIZE, NORM_READER, Tap(Y)],
    "rows change before they are read": [NORMALIZE, replace(ADD, x=X), NORM_READER],
    "a reader changes the rows": [NORMALIZE, Add(0, Y, None, X)],
    "a norm in place": [Normalize(0, X, FIXED, X), replace(NORM_READER, x=X)],
    "normed twice": [NORMALIZE, replace(NORM_READER, norm=FIXED)],
}


@pytest.mark.parametrize("ops", KEPT.values(), ids=KEPT)
def test_what_would_be_missed_or_is_not_the_same_stays(ops: list[Op]) -> None:
    assert fused(recorded(*ops), EVERY) == recorded(*ops)


@pytest.mark.parametrize("ops", [[TO_GATE, TO_UP, ACTIVATE], [TO_SUM, ADD], [NORMALIZE, NORM_READER]])
def test_a_rule_stays_within_a_segment(ops: list[Op]) -> None:
    *before, last = ops
    plan = Plan((Segment(tuple(before), "stop"), Segment((last,), None)))
    assert fused(plan, EVERY) == plan
    looked_at = next(buffer for buffer in vars(last).values() if isinstance(buffer, Buffer))
    later = Plan((Segment(tuple(ops), "stop"), Segment((), "again"), Segment((Tap(looked_at),), None)))
    assert fused(later, EVERY) == later
    filled = (replace(TO_SUM, x=looked_at), Tap(looked_at))
    again = Plan((Segment(tuple(ops), "stop"), Segment(filled, None)))
    assert [len(segment.ops) for segment in fused(again, EVERY).segments] == [1, 2]


def test_a_backend_may_take_some_rules() -> None:
    """Norms stay where one of their readers takes none."""
    plain = recorded(NORMALIZE, replace(TO_GATE, source=Y), replace(TO_UP, source=Y), ACTIVATE, TO_SUM, ADD)

    def kinds(*rules: Rule) -> list[str]:
        return [type(op).__name__ for op in fused(plain, rules).ops]

    assert kinds(*EVERY) == ["GateUp", "Project"]
    assert kinds(gate_up) == ["Normalize", "GateUp", "Project", "Add"]
    assert kinds(residual, NORMS) == ["Normalize", "Project", "Project", "Activate", "Project"]
    assert kinds(gate_up, NormInto(frozenset({Qkv}))) == ["Normalize", "GateUp", "Project", "Add"]
    assert kinds() == [type(op).__name__ for op in plain.ops]
