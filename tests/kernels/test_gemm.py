"""Matrix products at odd shapes: against the oracle, between instruction sets, alone and among other rows."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

import numpy as np
import pytest

from drut.formats.decode import split
from drut.kernels.numpy.numbers import quantize, round_bf16
from tests.kernels.conftest import Native
from tests.kernels.rig import (
    F32,
    FLOATS,
    QUANTS,
    Stored,
    U,
    assert_same_bits,
    blocks,
    code_range,
    floats,
    gate_up,
    oracle,
    project,
    projection,
    random_codes,
    random_matrix,
    usable_isas,
)

ROWS = (*range(1, 14), 100)  # around the kernels' tile of 6 rows, past the block of 96, which unpacks weights
N = (1, 31, 32, 33, 70)
SHAPES = [(name, n, k) for name in (*FLOATS, *QUANTS) for n in N
          for k in ((32, 64, 96, 576) if name in QUANTS else (32, 34, 50, 576))]


class Case(NamedTuple):
    weight: Stored
    source: F32
    residual: F32
    oracle: F32
    native: dict[str, list[F32]]  # by instruction set, what each count of ROWS gave


@pytest.fixture(scope="module", params=SHAPES, ids=lambda s: "-".join(map(str, s)))
def case(request: pytest.FixtureRequest, native: Native) -> Case:
    name, n, k = request.param
    rng = np.random.default_rng([n, k])
    weight = random_matrix(rng, name, n, k)._replace(
        rows=rng.permutation(n).astype(np.int32), bias=rng.standard_normal(n).astype(np.float32))
    source = rng.standard_normal((ROWS[-1], k)).astype(np.float32)
    residual = rng.standard_normal((ROWS[-1], n)).astype(np.float32)
    source[2] = 0
    results: dict[str, list[F32]] = {}
    for isa in usable_isas():
        ran, x = projection(native(isa), weight, source, residual)
        results[isa] = []
        for rows in ROWS:
            ran.run(range(rows))
            results[isa].append(ran.read(x))
    return Case(weight, source, residual, project(oracle(), weight, source, residual), results)


def test_close_to_the_oracle(case: Case) -> None:
    error = np.abs(case.native[usable_isas()[0]][-1].astype(np.float64) - case.oracle)
    assert (error <= 2 * rounding_bound(case)).all()


def rounding_bound(case: Case) -> np.ndarray[Any, Any]:
    """What either side may be off an exact sum: each rounding by U of the absolute terms' sum."""
    w, outer = case.weight, np.abs(case.residual).astype(np.float64) + np.abs(case.weight.bias)
    if w.encoding.is_float:
        x = round_bf16(case.source) if w.encoding.name == "BF16" else case.source
        terms, roundings = np.abs(x).astype(np.float64) @ np.abs(w.values()).T, w.k
    else:
        terms, roundings = group_terms(w, case.source).sum(axis=0), 2 * w.k // 32 + 2
    return U * ((roundings + 2) * terms + 2 * outer)


def group_terms(w: Stored, x: F32) -> np.ndarray[Any, Any]:
    """|scale * act_scale * dot| + |minimum * scaled sum|, (groups, rows, n)."""
    codes, scale, minimum = split(w.encoding, w.raw[w.rows], w.k)
    q, act_scale, scaled_sum = quantize(x)
    dots = np.einsum("rgi,ngi->grn", q, codes.reshape(w.n, -1, 32).astype(np.float64))
    terms = np.abs(dots * act_scale.T[:, :, None] * scale.T[:, None, :])
    return terms if minimum is None else terms + np.abs(scaled_sum.T[:, :, None] * minimum.T[:, None, :])


def test_every_instruction_set_gives_the_same_bits(case: Case) -> None:
    reference, *others = case.native.items()
    for isa, results in others:
        for actual, expected in zip(results, reference[1], strict=True):
            assert_same_bits(actual, expected, f"{isa}, {len(actual)} rows")


def test_a_row_does_not_depend_on_the_rows_beside_it(case: Case) -> None:
    for isa, (*fewer, whole) in case.native.items():
        for result in fewer:
            assert_same_bits(result, whole[: len(result)], f"{isa}, {len(result)} rows")


def test_a_row_alone_wherever_it_was(native: Native, isa: str) -> None:
    rng = np.random.default_rng(1)
    for name in (*FLOATS, *QUANTS):
        weight, source = random_matrix(rng, name, 33, 96), rng.standard_normal((100, 96)).astype(np.float32)
        ran, x = projection(native(isa), weight, source, np.zeros((100, 33), np.float32))
        ran.run(range(100))
        whole = ran.read(x)
        for row in (0, 6, 95, 96, 99):
            ran.run([row])
            assert_same_bits(ran.read(x)[0], whole[row], f"{name} row {row}")


def integer_source(rng: np.random.Generator, rows: int, k: int) -> F32:
    """Integers of -127..127 that quantize to themselves at scale 1: each group's largest is 127. Row 0 is zero."""
    source = rng.integers(-127, 128, (rows, k)).astype(np.float32)
    source[:, ::32] = 127 * rng.choice([-1, 1], (rows, k // 32))
    source[0] = 0
    return source


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("scale", [2.0**-24, 1.0, 2.0**15])  # the least subnormal half, one, the largest power of two
def test_integer_sums_are_exact(native: Native, isa: str, name: str, scale: float) -> None:
    rng = np.random.default_rng(2)
    for n, k in [(1, 32), (33, 576), (70, 96)]:
        codes, source = random_codes(rng, name, n, k), integer_source(rng, 9, k)
        weight = blocks(name, codes, scale, -scale)
        zero = {"Q4_0": -8, "Q4_1": -1, "Q8_0": 0}[name]
        exact = (source @ (codes + zero).T * scale).astype(np.float32)
        assert_same_bits(project(native(isa), weight, source), exact + 0, f"{n}x{k}")
        assert_same_bits(project(oracle(), weight, source), exact + 0, f"oracle {n}x{k}")


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize("scale", [1.0, 65504.0])
def test_extreme_codes_against_extreme_activations(native: Native, isa: str, name: str, scale: float) -> None:
    """All codes at either end, so that sums of bytes reach what 16 bits could not hold; nothing saturates."""
    low, high = code_range(name)
    codes = np.array([low, high, low, high])[:, None] * np.ones(96, np.int64)
    codes[2, ::2], codes[3, ::2] = high, low
    source = 127.0 * np.array([np.ones(96), -np.ones(96), np.resize([1, -1], 96), np.resize([1, 1, -1, -1], 96)])
    exact = source @ ((codes + {"Q4_0": -8, "Q4_1": 0, "Q8_0": 0}[name]) * scale).T
    actual = project(native(isa), blocks(name, codes, scale), source.astype(np.float32))
    assert_same_bits(actual, exact.astype(np.float32) + 0)


def test_float_products_of_small_integers_are_exact(native: Native, isa: str) -> None:
    rng = np.random.default_rng(3)
    for name in FLOATS:
        for n, k in [(1, 34), (33, 50), (70, 576)]:
            w, source = rng.integers(-16, 17, (n, k)), rng.integers(-16, 17, (9, k)).astype(np.float32)
            assert_same_bits(project(native(isa), floats(w, name), source), (source @ w.T).astype(np.float32) + 0, name)


def test_stored_rows_in_another_order(native: Native, isa: str) -> None:
    rng = np.random.default_rng(4)
    order = rng.integers(0, 70, 70).astype(np.int32)  # some twice, some never
    for name in (*FLOATS, *QUANTS):
        weight, source = random_matrix(rng, name, 70, 64), rng.standard_normal((3, 64)).astype(np.float32)
        stored = project(native(isa), weight, source)
        assert_same_bits(project(native(isa), weight._replace(rows=order), source), stored[:, order], name)


@pytest.mark.parametrize("name", [*FLOATS, *QUANTS])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_its_row_only(native: Native, isa: str, name: str, bad: float) -> None:
    rng = np.random.default_rng(5)
    weight, source = random_matrix(rng, name, 33, 64), rng.standard_normal((8, 64)).astype(np.float32)
    clean = project(native(isa), weight, source)
    source[5, 40] = bad
    for backend in (native(isa), oracle()):
        assert not np.isfinite(project(backend, weight, source)[5]).any()
    others = [i for i in range(8) if i != 5]
    assert_same_bits(project(native(isa), weight, source)[others], clean[others])


def test_activations_around_the_smallest_float(native: Native, isa: str) -> None:
    """Whatever 127 / maximum comes to: where a group's scale would be subnormal its products are zero."""
    source = np.array([[x, *[0] * 31] for x in (1e-45, 1e-38, 1.2e-38, 3e-37, 4e-37, 2e-36, 1e-30)], np.float32)
    for name in (*FLOATS, *QUANTS):
        ones = np.full((1, 32), 9 if name == "Q4_0" else 1)
        weight = blocks(name, ones, 1.0) if name in QUANTS else floats(ones, name)
        got, exact = project(native(isa), weight, source)[:, 0], source[:, 0].astype(np.float64)
        assert (np.abs(got - exact) <= 1.5e-36 + exact * 2.0**-8).all(), name  # a bf16 activation has 8 bits


@pytest.mark.parametrize("name", FLOATS)
def test_floats_of_any_size_have_the_same_bits(native: Native, isa: str, name: str) -> None:
    """Subnormal operands, products and sums that vanish or overflow on the way, on every worker."""
    rng = np.random.default_rng(8)
    for least, most in ((-149, -100), (-70, -56), (-20, 20), (55, 127)):
        with np.errstate(over="ignore"):
            wild = np.ldexp(rng.uniform(-2, 2, (71, 33)), rng.integers(least, most, (71, 33))).astype(np.float32)
            weight = floats(wild[:64], name)
        plain = project(native("portable", 1), weight, wild[64:])
        assert_same_bits(project(native(isa), weight, wild[64:]), plain, f"2^{least} to 2^{most}")


def test_what_rounds_up_to_the_smallest_normal_float_is_not_flushed(native: Native, isa: str) -> None:
    """x86 asks whether a result is subnormal after rounding it; so must the portable multiply-add."""
    below, above = (np.array([[factor * 2.0**-63]], np.float32) for factor in (1 - 2.0**-13, 1 + 2.0**-13))
    assert project(native(isa), floats(below), below)[0, 0] == 0
    product = project(native(isa), floats(below), above)[0, 0]
    if product == 0 and platform.machine() == "aarch64":
        pytest.skip("without FEAT_AFP a CPU asks before rounding it")
    assert product == 2.0**-126


def test_gate_and_up(native: Native, isa: str) -> None:
    rng = np.random.default_rng(7)
    for name in (*FLOATS, *QUANTS):
        gate, up = random_matrix(rng, name, 70, 64), random_matrix(rng, name, 70, 64)
        signs = rng.choice([-1, 1], (13, 64)).astype(np.float32)
        result = gate_up(native(isa), gate, up, signs)
        # Products of two sums of 64 unit terms: each sum is off by at most 64 roundings of about 64.
        np.testing.assert_allclose(result, gate_up(oracle(), gate, up, signs), rtol=2e-6, atol=64 * 64 * U * 10)
        assert_same_bits(result[4:5], gate_up(native(isa), gate, up, signs[4:5]), name)
