"""A whole decoder layer as one plan: the same bits with any instruction set, thread count and execution."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest

from drut.kernels.backend import Backend
from drut.kernels.fusion import Rule, fused
from drut.kernels.fusion.rules import EVERY
from drut.kernels.kv import KvLayout
from drut.kernels.ops import (
    Activate,
    Add,
    Attention,
    Buffer,
    Embed,
    Head,
    Norm,
    Normalize,
    Project,
    RopeTable,
    Sample,
    StoreQkv,
)  # fmt: skip
from drut.kernels.plan import BEFORE_HEAD, BEFORE_SAMPLE, Plan, Recorder
from tests.kernels.conftest import Native
from tests.kernels.rig import F32, FLOATS, QUANTS, Draw, Ran, assert_same_bits, oracle, random_matrix, usable_isas

HIDDEN, FFN, VOCAB, HEADS = 64, 96, 70, 6
NAMES = [*FLOATS, *QUANTS]
FORMATS = [(name, kv) for name in NAMES for kv in ("bf16", "fp32")]
DIGESTS = {
    ("F32", "bf16"): "19c1b2b8b3f4", ("F32", "fp32"): "6a8d66ee28fa",
    ("F16", "bf16"): "8234ae32b3a7", ("F16", "fp32"): "25bafbc49896",
    ("BF16", "bf16"): "3b371817b9aa", ("BF16", "fp32"): "bd5cae770f18",
    ("Q4_0", "bf16"): "211234503825", ("Q4_0", "fp32"): "8eed0ba2dd63",
    ("Q4_1", "bf16"): "4704c0d534fc", ("Q4_1", "fp32"): "a9ca2cfdc33e",
    ("Q8_0", "bf16"): "41d2750ec038", ("Q8_0", "fp32"): "401eddd8d1fa",
}
TOKENS = np.random.default_rng(5).integers(0, VOCAB, 150).tolist()


def layer(backend: Backend, name: str, kv: KvLayout) -> Plan:
    """One layer of 6 query and 2 key/value heads of 16, unfused, every matrix stored as `name`."""
    rng = np.random.default_rng(4)

    def matrix(n: int, k: int):
        return random_matrix(rng, name, n, k).on(backend)

    def norm():
        return Norm(backend.vector(rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32) / 8), 1e-5)

    x, rope, out, inner = (Buffer(*b) for b in [("x", HIDDEN), ("rope", 16), ("out", 96), ("inner", FFN)])
    q, k, v, y, added = (Buffer(*b) for b in [("q", 96), ("k", 32), ("v", 32), ("y", HIDDEN), ("added", HIDDEN)])
    gate, up = Buffer("gate", FFN), Buffer("up", FFN)
    r = Recorder()
    r.add(Embed(matrix(VOCAB, HIDDEN), x))
    r.add(RopeTable(tuple(2.0**-i for i in range(8)), rope))
    r.add(Normalize(0, x, norm(), y))
    for to in (q, k, v):
        r.add(Project(0, y, matrix(to.width, HIDDEN), to, add=False))
    r.add(StoreQkv(layer=0, rope=rope, q=q, k=k, v=v, heads=HEADS, kv=kv))
    r.add(Attention(layer=0, q=q, out=out, heads=HEADS, kv=kv, scale=0.25))
    r.add(Project(0, out, matrix(HIDDEN, 96), added, add=False))
    r.add(Add(0, added, None, x))
    r.add(Normalize(0, x, norm(), y))
    r.add(Project(0, y, matrix(FFN, HIDDEN), gate, add=False))
    r.add(Project(0, y, matrix(FFN, HIDDEN), up, add=False))
    r.add(Activate(0, gate, up, inner))
    r.add(Project(0, inner, matrix(HIDDEN, FFN), added, add=False))
    r.add(Add(0, added, None, x))
    r.stop(BEFORE_HEAD)
    r.add(Head(x, norm(), matrix(VOCAB, HIDDEN)))
    r.stop(BEFORE_SAMPLE)
    r.add(Sample(VOCAB))
    return r.finish()


def answer(backend: Backend, name: str, dtype: str, rules: Sequence[Rule] = EVERY) -> tuple[F32, list[int]]:
    """Logits and drawn tokens of 120 positions of one sequence and 30 of another, in one step; 150 samples."""
    kv = KvLayout(dtype, 1, 2, 16)
    plan = fused(layer(backend, name, kv), rules)
    ran = Ran(backend, plan, rows=150, samples=150, kv=kv, pages=12)
    ran.step.clear()
    ran.step.add_sequence(TOKENS[:120], 0, [3, 1, 4, 0, 5, 9, 2, 6], 0)
    ran.step.add_sequence(TOKENS[120:], 0, [8, 7], 1)
    for row in range(150):
        ran.step.add_sample(row, Draw(temperature=row % 3 * 0.5, top_p=0.95, seed=row))
    out = ran.executable.run(ran.step)
    assert out.drawn.all()
    return ran.executable.logits(150).copy(), out.tokens.tolist()


@pytest.mark.parametrize(("name", "dtype"), FORMATS)
def test_close_to_the_oracle(native: Native, name: str, dtype: str) -> None:
    """An activation at a rounding boundary of int8 or bf16 may fall to the other side, once or twice a row."""
    actual, _ = answer(native(), name, dtype)
    expected, _ = answer(oracle(), name, dtype)
    exact = name in ("F32", "F16") and dtype == "fp32"
    error = np.abs(actual - expected).max(axis=1) / np.abs(expected).max(axis=1)
    assert np.median(error) < (2e-6 if exact else 1e-4)
    assert error.max() < (1e-5 if exact else 3e-2)


@pytest.mark.parametrize(("name", "dtype"), FORMATS)
def test_the_same_bits_however_it_runs(native: Native, name: str, dtype: str) -> None:
    logits, tokens = answer(native("portable", 1, "eager"), name, dtype)
    ways = [(isa, 2, "replay") for isa in usable_isas()] + [("auto", n, "replay") for n in (1, 3, 5)]
    for way in [*ways, ("auto", 3, "eager")]:
        again, same = answer(native(*way), name, dtype)
        assert_same_bits(again, logits, str(way))
        assert same == tokens, way


@pytest.mark.parametrize(("name", "dtype"), FORMATS)
def test_without_fusion_the_bits_are_the_same(native: Native, name: str, dtype: str) -> None:
    plain = layer(oracle(), name, KvLayout(dtype, 1, 2, 16))
    assert (len(plain.ops), len(fused(plain, EVERY).ops)) == (18, 9)
    for backend in (native("auto", 2), oracle()):
        logits, tokens = answer(backend, name, dtype)
        apart, same = answer(backend, name, dtype, ())
        assert_same_bits(apart, logits, backend.describe())
        assert same == tokens


@pytest.mark.parametrize(("name", "dtype"), FORMATS)
def test_the_bits_of_this_numerics_version(native: Native, name: str, dtype: str) -> None:
    """Where one differs a rule of docs/numerics.md has changed: raise the numerics version, then change it here."""
    logits, tokens = answer(native(), name, dtype)
    digest = hashlib.sha256(logits.astype("<f4").tobytes() + np.array(tokens, "<i4").tobytes()).hexdigest()
    assert digest[:12] == DIGESTS[name, dtype]


@pytest.mark.parametrize("backend_name", ["native", "numpy"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_prompt_in_pieces_has_the_logits_of_the_whole(native: Native, backend_name: str, dtype: str) -> None:
    """The law of batching, through every operation at once: row blocks, shared and private activations, chunks."""
    backend = native() if backend_name == "native" else oracle()
    for name in ("F32", "BF16", "Q4_1"):
        kv = KvLayout(dtype, 1, 2, 16)
        ran = Ran(backend, fused(layer(backend, name, kv), EVERY), rows=150, samples=150, kv=kv, pages=12)

        def logits(start: int, end: int, ran: Ran = ran) -> F32:
            ran.step.clear()
            ran.step.add_sequence(TOKENS[start:end], start, range(10), 0)
            for row in range(end - start):
                ran.step.add_sample(row, Draw())
            ran.executable.run(ran.step)
            return ran.executable.logits(end - start).copy()

        whole = logits(0, 150)
        for step in (1, 4, 5, 97):
            starts = range(0, 150, step) if step > 1 else range(10)
            parts = np.concatenate([logits(start, min(150, start + step)) for start in starts])
            assert_same_bits(parts, whole[: len(parts)], f"{name}, {step} at a time")


def test_operations_are_timed_when_asked(native: Native) -> None:
    kv = KvLayout("fp32", 1, 2, 16)
    backend = native()
    ran = Ran(backend, fused(layer(backend, "Q4_0", kv), EVERY), rows=1, kv=kv)
    ran.run([0])
    assert not ran.executable.op_ns.any()
    ran.executable.time_operations(True)
    ran.run([0])
    assert (ran.executable.op_ns[:8] > 0).all()
    ran.executable.time_operations(False)
    before = ran.executable.op_ns.copy()
    ran.run([0])
    assert (ran.executable.op_ns == before).all()
