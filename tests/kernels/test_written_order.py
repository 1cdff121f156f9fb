"""The order of docs/numerics.md, step by step in plain Python, bit for bit: what no tolerance and no comparison of
instruction sets among themselves can see."""

from __future__ import annotations

import numpy as np
import pytest

from drut.formats.decode import split
from drut.kernels.native import library
from drut.kernels.numpy.numbers import quantize, round_bf16
from tests.kernels.conftest import Native
from tests.kernels.rig import (
    F32,
    FLOATS,
    QUANTS,
    Draw,
    Ran,
    Stored,
    assert_same_bits,
    floats,
    head_plan,
    project,
    random_matrix,
)


def fma(a: float, b: float, c: float) -> float:
    """One rounding (tests/kernels/test_numerics.py holds it to exact arithmetic)."""
    loaded = library.load()
    assert loaded is not None
    return loaded.drut_soft_fma(float(a), float(b), float(c))


def float_dot(weights: F32, x: F32, order: list[int]) -> float:
    acc = 0.0
    for k in order:
        acc = fma(weights[k], x[k], acc)
    return acc


def integer_dots(w: Stored, x: F32) -> list[float]:
    """One row against every output: per group the exact sum, scaled by the activations' scale, then the weights'."""
    codes, scale, minimum = split(w.encoding, w.raw, w.k)
    q, act_scale, scaled_sum = quantize(x[None])
    out = []
    for n in range(w.n):
        acc = 0.0
        for g in range(w.k // 32):
            s = np.float32(codes[n, 32 * g : 32 * g + 32].astype(np.int64) @ q[0, g].astype(np.int64))
            acc = fma(s * act_scale[0, g], scale[n, g], acc)
            if minimum is not None:
                acc = fma(scaled_sum[0, g], minimum[n, g], acc)
        out.append(acc)
    return out


@pytest.mark.parametrize("name", [*FLOATS, *QUANTS])
def test_products(native: Native, isa: str, name: str) -> None:
    """Along K in ascending order; in bf16 of each pair the odd element first."""
    rng = np.random.default_rng(11)
    weight, x = random_matrix(rng, name, 5, 96), rng.standard_normal((2, 96)).astype(np.float32)
    if name in QUANTS:
        expected = [integer_dots(weight, row) for row in x]
    else:
        order = [k ^ 1 for k in range(96)] if name == "BF16" else list(range(96))
        taken = round_bf16(x) if name == "BF16" else x
        expected = [[float_dot(w, row, order) for w in weight.values()] for row in taken]
    assert_same_bits(project(native(isa), weight, x), np.array(expected, np.float32) + 0)


def test_rms_norm(native: Native, isa: str) -> None:
    """Squares in 16 lanes, lanes folded in halves, one division, two products."""
    rng = np.random.default_rng(12)
    x, weight = rng.standard_normal((2, 48)).astype(np.float32)
    eps = np.float32(1e-5)
    lanes = np.zeros(16, np.float32)
    for i, value in enumerate(x):
        lanes[i % 16] = fma(value, value, lanes[i % 16])
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    inverse = np.float32(1) / np.sqrt(lanes[0] / np.float32(48) + eps)
    ran = Ran(native(isa), head_plan(native(isa), x[None], weight, float(eps), floats(np.eye(48))), rows=1)
    ran.step.clear()
    ran.step.add_sequence([0], 0, [0], 0)
    ran.step.add_sample(0, Draw())
    ran.executable.run(ran.step)
    assert_same_bits(ran.executable.logits(1)[0].copy(), x * inverse * weight)
