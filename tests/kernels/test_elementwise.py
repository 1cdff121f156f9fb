"""Embedding rows, norms, rotations and the gate's activation: against the oracle and float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from drut.kernels.backend import Backend
from drut.kernels.kv import KvLayout
from drut.kernels.native.backend import NativeBackend
from drut.kernels.ops import Add, Buffer, Embed, Norm, Project, Qkv, RopeTable
from tests.kernels.conftest import Native
from tests.kernels.rig import (
    F32,
    FLOATS,
    NO_KV,
    QUANTS,
    Draw,
    Ran,
    Stored,
    assert_same_bits,
    diagonal,
    encoding,
    filler_head,
    floats,
    gate_up,
    head_plan,
    oracle,
    recorded,
    usable_isas,
)
from tests.kernels.test_encodings import random_file


@pytest.fixture(params=["numpy", *usable_isas()])
def backend(request: pytest.FixtureRequest) -> Backend:
    """The oracle, then each instruction set."""
    if request.param == "numpy":
        return oracle()
    return request.getfixturevalue("native")(request.param)


@pytest.mark.parametrize("name", [*FLOATS, *QUANTS])
def test_embedding_rows_are_what_decode_says(backend: Backend, name: str) -> None:
    """Random bytes: codes and floats of all kinds, subnormal, infinite and NaN; scales are finite."""
    enc = encoding(name)
    for n, k in [(1, 32), (33, 64), (70, 576), *([(33, 50)] if name in FLOATS else [])]:
        if name in FLOATS:
            raw = np.random.default_rng([n, k]).integers(0, 256, (n, enc.row_bytes(k)), np.uint8)
            table, x = Stored(enc, raw, n, k), Buffer("x", k)
        else:
            table, x = random_file(name, n, k), Buffer("x", k)
        ran = Ran(backend, recorded(Embed(table.on(backend), x), filler_head(backend, x)), rows=n, pages=5)
        ran.run(range(n))
        assert_same_bits(ran.read(x), table.values(), f"{n}x{k}")
        ran.run([n - 1])
        assert_same_bits(ran.read(x)[0], table.values()[-1])


def normed(backend: Backend, x: F32, weight: F32, eps: float, **how: Any) -> F32:
    """x / rms(x) * weight through a head that multiplies by one; `how`: see `head_plan`."""
    rows, width = x.shape
    ran = Ran(backend, head_plan(backend, x, weight, eps, floats(np.eye(width)), **how), rows=rows, samples=rows)
    ran.step.clear()
    ran.step.add_sequence(range(rows), 0, [0], 0)
    for row in range(rows):
        ran.step.add_sample(row, Draw())
    ran.executable.run(ran.step)
    return ran.executable.logits(rows).copy()


@pytest.mark.parametrize("width", [1, 16, 31, 33, 96, 576])
@pytest.mark.parametrize("size", [1e-18, 1e-3, 1.0, 1e15])
def test_rms_norm(backend: Backend, width: int, size: float) -> None:
    rng = np.random.default_rng(width)
    x = (size * rng.standard_normal((9, width))).astype(np.float32)
    x[3] = 0
    weight, eps = rng.standard_normal(width).astype(np.float32), 1e-5
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + eps) * weight
    np.testing.assert_allclose(normed(backend, x, weight, eps), exact, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("width", [1, 31, 33, 576])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_layer_norm(backend: Backend, width: int, offset: float) -> None:
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((5, width)) + offset).astype(np.float32)
    weight, bias = rng.standard_normal((2, width)).astype(np.float32)
    apart = x.astype(np.float64) - x.mean(axis=1, keepdims=True, dtype=np.float64)
    exact = apart / np.sqrt((apart**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    limit = 1e-5 * (1 + offset)  # what taking off a large mean leaves is as rough as the mean
    np.testing.assert_allclose(normed(backend, x, weight, 1e-5, centred=True), exact, rtol=0, atol=limit)
    with_bias = normed(backend, x, weight, 1e-5, centred=True, bias=bias)
    np.testing.assert_allclose(with_bias, exact + bias, rtol=0, atol=limit)


def test_logits_are_scaled_then_capped(backend: Backend) -> None:
    """The cap is a tanh: within 2e-7 of its size from the smallest arguments to where it is flat."""
    grid = np.concatenate([10.0 ** np.linspace(-20, 3, 30), np.linspace(0.5, 0.75, 34)]).astype(np.float32)
    x, ones = np.stack([np.ones(64), -np.ones(64)]).astype(np.float32), np.ones(64, np.float32)
    plan = head_plan(backend, x, ones, 0.0, floats(np.diag(grid)), scale=0.5, cap=3.0)
    ran = Ran(backend, plan, rows=2, samples=2)
    ran.step.clear()
    ran.step.add_sequence(range(2), 0, [0], 0)
    for row in range(2):
        ran.step.add_sample(row, Draw())
    ran.executable.run(ran.step)
    exact = 3 * np.tanh(x.astype(np.float64) * grid * 0.5 / 3)
    np.testing.assert_allclose(ran.executable.logits(2), exact, rtol=5e-7, atol=1e-30)


def test_norms_have_the_same_bits_alone_and_on_every_instruction_set(native: Native) -> None:
    rng = np.random.default_rng(0)
    for width, how in itertools.product((16, 33, 576), ({}, {"centred": True}, {"scale": 0.3, "cap": 1.5})):
        x, weight = rng.standard_normal((9, width)).astype(np.float32), rng.standard_normal(width).astype(np.float32)
        plain = normed(native("portable"), x, weight, 1e-6, **how)
        for isa in usable_isas():
            assert_same_bits(normed(native(isa), x, weight, 1e-6, **how), plain, isa)
            assert_same_bits(normed(native(isa), x[7:8], weight, 1e-6, **how), plain[7:8], isa)


def turned(backend: Backend, x: F32, inv_freq: list[float], start: int, scale: float,
           norms: tuple[F32, F32] | None = None) -> tuple[F32, F32]:
    """Of rows of +-1 at positions from `start` on, the queries (2 heads of 32, unchanged rows) and the rope table."""
    rows, head_dim = len(x), 32
    kv = KvLayout("fp32", 1, 1, head_dim)
    source, rope, q, k, v = (Buffer(name, width) for name, width in [
        ("x", 64), ("rope", 2 * len(inv_freq)), ("q", 64), ("k", head_dim), ("v", head_dim)])
    eye = floats(np.eye(64)).on(backend)
    half = floats(np.eye(32, 64)).on(backend)
    q_norm, k_norm = (Norm(backend.vector(n), 0.0) for n in norms) if norms else (None, None)
    qkv = Qkv(layer=0, x=source, norm=Norm(backend.vector(np.ones(64, np.float32)), 0.0), q_proj=eye, k_proj=half,
              v_proj=half, rope=rope, q=q, k=k, v=v, heads=2, kv=kv, q_norm=q_norm, k_norm=k_norm)
    plan = recorded(Embed(floats(x).on(backend), source), RopeTable(tuple(inv_freq), rope, scale), qkv,
                    filler_head(backend, source))
    ran = Ran(backend, plan, rows=rows, kv=kv, pages=-(-(start + rows) // 16), pool=backend.pool(kv, 1))
    ran.run(range(rows), start)
    table = ran.read(rope)
    if isinstance(backend, NativeBackend):  # its rows are contiguous, not padded
        table = ran.executable.workspace.buffers[rope].ravel()[: table.size].reshape(table.shape).copy()
    return ran.read(q), table


FREQUENCIES = [10000.0 ** (-i / 16) for i in range(16)]
SIGNS = np.random.default_rng(1).choice([-1, 1], (5, 64)).astype(np.float32)


@pytest.mark.parametrize("start", [0, 251, 131_068, 999_996])
@pytest.mark.parametrize("pairs", [16, 8, 5])  # all of a head, half of it, an odd part
def test_rope(backend: Backend, start: int, pairs: int) -> None:
    q, table = turned(backend, SIGNS, FREQUENCIES[:pairs], start, 0.75)
    angle = np.arange(start, start + 5)[:, None] * np.array(FREQUENCIES[:pairs])
    cosine, sine = (np.float32(0.75) * f(angle).astype(np.float32) for f in (np.cos, np.sin))
    # Rounded once from float64: equal but where a last place of float64 decides.
    np.testing.assert_allclose(table, np.concatenate([cosine, sine], axis=1), rtol=1.3e-7, atol=1e-9)
    assert (table == np.concatenate([cosine, sine], axis=1)).mean() > 0.99
    x = SIGNS.reshape(5, 2, 32).astype(np.float64)
    a, b, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    c, s = cosine[:, None], sine[:, None]
    exact = np.concatenate([a * c - b * s, b * c + a * s, rest], axis=-1).reshape(5, 64)
    np.testing.assert_allclose(q, exact, rtol=0, atol=2e-7)


def test_head_norms_come_before_rope(backend: Backend) -> None:
    weight = np.linspace(0.5, 2.0, 32).astype(np.float32)
    q, _ = turned(backend, SIGNS, [0.0] * 16, 3, 1.0, (weight, weight))
    np.testing.assert_allclose(q, SIGNS * np.tile(weight, 2), rtol=3e-7)


def wide(backend: Backend, growth: tuple[float, int] | None) -> tuple[F32, F32]:
    """Queries of 3 heads of 16 and the page of 1 head's keys, normed over all heads and turned by nothing."""
    kv, rng = KvLayout("fp32", 1, 1, 16), np.random.default_rng(3)
    source, q, k, v = (Buffer(name, width) for name, width in [("x", 64), ("q", 48), ("k", 16), ("v", 16)])
    mats = [floats(rng.integers(-8, 9, (n, 64)) / 8).on(backend) for n in (48, 16, 16)]
    norms = [Norm(backend.vector(rng.uniform(0.5, 1.5, n).astype(np.float32)), 1e-5) for n in (48, 16)]
    qkv = Qkv(0, source, None, *mats, None, q, k, v, 3, kv, *norms, wide_norm=True, growth=growth)
    ran = Ran(backend, recorded(Embed(floats(SIGNS).on(backend), source), qkv, filler_head(backend, source)), rows=5,
              kv=kv, pages=5, pool=backend.pool(kv, 1))
    ran.run(range(5), 62, [0] * 5)
    return ran.read(q), ran.pool.data.view(np.float32).copy()


@pytest.mark.parametrize("growth", [None, (0.25, 32)])
def test_norms_over_all_heads_and_growing_queries(backend: Backend, native: Native,
                                                  growth: tuple[float, int] | None) -> None:
    rng = np.random.default_rng(3)
    mats = [rng.integers(-8, 9, (n, 64)) / 8 for n in (48, 16, 16)]
    weight = rng.uniform(0.5, 1.5, 48).astype(np.float32)
    exact = SIGNS.astype(np.float64) @ mats[0].T
    exact = exact / np.sqrt((exact**2).mean(axis=1, keepdims=True) + 1e-5) * weight
    if growth:
        exact *= 1 + growth[0] * np.log(1 + np.arange(62, 67)[:, None] // growth[1])
    q, _ = wide(backend, growth)
    np.testing.assert_allclose(q, exact, rtol=0, atol=3e-6)
    if backend.name == "native":
        for actual, expected in zip(wide(backend, growth), wide(native("portable"), growth), strict=True):
            assert_same_bits(actual, expected)


def post_normed(backend: Backend, scale: float) -> F32:
    """x + scale * norm(x . weight), of 5 rows."""
    rng = np.random.default_rng(4)
    x, out = Buffer("x", 64), Buffer("out", 64)
    weight, g = floats(rng.integers(-8, 9, (64, 64)) / 8), rng.uniform(0.5, 1.5, 64).astype(np.float32)
    plan = recorded(Embed(floats(SIGNS).on(backend), x, 2.0), Project(0, x, weight.on(backend), out, add=False),
                    Add(0, out, Norm(backend.vector(g), 1e-5), x, scale), filler_head(backend, x))
    ran = Ran(backend, plan, rows=5)
    ran.run(range(5))
    return ran.read(x)


def test_what_comes_out_is_normed_scaled_and_added(backend: Backend, native: Native) -> None:
    rng = np.random.default_rng(4)
    weight, g = rng.integers(-8, 9, (64, 64)) / 8, rng.uniform(0.5, 1.5, 64).astype(np.float32)
    y = 2.0 * SIGNS.astype(np.float64) @ weight.T
    exact = 2.0 * SIGNS + 0.375 * y / np.sqrt((y**2).mean(axis=1, keepdims=True) + 1e-5) * g
    result = post_normed(backend, 0.375)
    np.testing.assert_allclose(result, exact, rtol=0, atol=2e-6)
    if backend.name == "native":
        assert_same_bits(result, post_normed(native("portable"), 0.375))


def test_rope_has_the_same_bits_on_every_instruction_set(native: Native) -> None:
    weight = np.linspace(0.5, 2.0, 32).astype(np.float32)
    plain = turned(native("portable"), SIGNS, FREQUENCIES, 4093, 1.0, (weight, weight))
    for isa in usable_isas()[1:]:
        again = turned(native(isa), SIGNS, FREQUENCIES, 4093, 1.0, (weight, weight))
        for actual, expected in zip(again, plain, strict=True):
            assert_same_bits(actual, expected, isa)


def test_silu(native: Native, isa: str) -> None:
    """Within 4e-7 of float64 from the smallest arguments to those whose exponential saturates."""
    grid = np.concatenate([[0.0], 10.0 ** np.linspace(-30, 4, 127), np.linspace(80, 95, 64)]).astype(np.float32)
    signs = np.ones((2, grid.size), np.float32)
    signs[1] = -1
    gate, up = diagonal(grid), diagonal(np.ones(grid.size, np.float32))
    result = gate_up(native(isa), gate, up, signs)
    x = signs.astype(np.float64) * grid
    with np.errstate(over="ignore"):
        exact = x / (1 + np.exp(-x)) * signs
    np.testing.assert_allclose(result, exact, rtol=4e-7, atol=1e-34)  # past -88 what is left is below 1e-34
    assert_same_bits(result, gate_up(native("portable"), gate, up, signs))


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu_erf"])
@pytest.mark.parametrize("gated", [True, False])
def test_gelu(backend: Backend, native: Native, activation: str, gated: bool) -> None:
    """Within 3e-7 of float64 relative to the argument; the erf is an approximation of that size."""
    grid = np.concatenate([[0.0], 10.0 ** np.linspace(-20, 2, 95)]).astype(np.float32)
    signs = np.ones((2, grid.size), np.float32)
    signs[1] = -1
    first, ones = diagonal(grid), diagonal(np.ones(grid.size, np.float32))
    matrices = (first, ones) if gated else (None, first)
    result = gate_up(backend, *matrices, signs, activation)
    x = signs.astype(np.float64) * grid
    if activation == "gelu_erf":
        exact = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    else:
        exact = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    exact = exact * signs if gated else exact
    assert (np.abs(result - exact) <= 3e-7 * np.abs(x)).all()
    if backend.name == "native":
        assert_same_bits(result, gate_up(native("portable"), *matrices, signs, activation))


def test_silu_of_the_oracle() -> None:
    grid = np.linspace(-100, 100, 64).astype(np.float32)
    ones = np.ones((1, 64), np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(gate_up(oracle(), diagonal(grid), diagonal(ones[0]), ones)[0],
                                   grid / (1 + np.exp(-grid.astype(np.float64))), rtol=3e-7, atol=1e-34)


def test_a_head_of_some_rows_only(backend: Backend) -> None:
    """Logits of the sampled rows, in the order of the samples; a row may be asked for twice."""
    x = np.random.default_rng(0).standard_normal((9, 32)).astype(np.float32)
    weight = floats(np.random.default_rng(1).standard_normal((33, 32)))
    ran = Ran(backend, head_plan(backend, x, np.ones(32, np.float32), 1e-5, weight), rows=9, samples=9, kv=NO_KV)

    def logits(rows: list[int]) -> F32:
        ran.step.clear()
        ran.step.add_sequence(range(9), 0, [0], 0)
        for row in rows:
            ran.step.add_sample(row, Draw())
        ran.executable.run(ran.step)
        return ran.executable.logits(len(rows)).copy()

    every = logits(list(range(9)))
    assert_same_bits(logits([8, 3, 3]), every[[8, 3, 3]])
    assert_same_bits(logits([0]), every[:1])
