"""Every quantized encoding from a file's bytes through packing and kernels, against the oracle and against itself."""

from __future__ import annotations

import numpy as np
import pytest

from drut.errors import ModelFileError
from drut.formats.decode import split
from drut.formats.encoding import ENCODINGS, encoding
from drut.formats.planes import E4M3, join
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.numbers import quantize, to_bf16
from drut.kernels.ops import Buffer, Embed, Project
from tests.kernels.conftest import Native
from tests.kernels.rig import Ran, Stored, assert_same_bits, filler_head, floats, recorded, usable_isas

BLOCKS = [name for name, enc in ENCODINGS.items() if not enc.is_float]
PLANES = ["int4-g32-bf16", "int4-g128-f16", "int4z-g128-f16", "int4z-row-f32", "int4z-g64-bf16", "int8-row-f32",
          "int8-g32-f16", "int8z-row-bf16", "nvfp4"]
QUANTS = [*BLOCKS, *PLANES]
FP8 = ["fp8-row-f32", "fp8-row-bf16", "fp8-g128-f32"]
# Offsets of f16 scale and minimum in a block; 0 for encodings not listed.
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2),
          "Q5_1": (0, 2), "MXFP4": (), "TQ1_0": (52,), "TQ2_0": (64,)}


def random_file(name: str, n: int, k: int, *, unit: bool = False) -> Stored:
    """Random codes and small scales; f16 scales around a thirtieth, or all one."""
    enc, rng = encoding(name), np.random.default_rng([n, k])
    if not enc.block_bytes:
        return random_planes(enc, rng, n, k, unit)
    blocks = rng.integers(0, 256, (n, k // enc.block, enc.block_bytes), np.uint8)
    for at in HALVES.get(name, (0,)):
        scales = np.ones(blocks.shape[:2]) if unit else rng.uniform(0.02, 0.05, blocks.shape[:2])
        blocks[:, :, at : at + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    if name == "MXFP4":
        blocks[:, :, 0] = 128 if unit else rng.integers(60, 130, blocks.shape[:2])
    return Stored(enc, blocks.reshape(n, -1), n, k)


def random_planes(enc, rng: np.random.Generator, n: int, k: int, unit: bool) -> Stored:
    groups = enc.groups(k)
    codes = rng.integers(0, 256, (n, k * enc.bits // 8), np.uint8)
    if enc.is_float:
        codes[(codes & 127) == 127] = 1
    if enc.scale == "e4m3":
        fine = np.full((n, groups), 56) if unit else rng.integers(1, 120, (n, groups))  # 56: one
        return Stored(enc, join(np.ones((n, 1), np.float32), fine.astype(np.uint8), codes), n, k)
    scales = np.ones((n, groups), np.float32) if unit else rng.uniform(0.02, 0.05, (n, groups)).astype(np.float32)
    stored = {"f16": scales.astype(np.float16), "bf16": to_bf16(scales), "f32": scales}[enc.scale]
    zeros = rng.integers(-8 if enc.bits == 4 else -128, 8 if enc.bits == 4 else 128, (n, groups)).astype(np.int8)
    return Stored(enc, join(stored, *[zeros] * (enc.offset == "zero_points"), codes), n, k)


def project(backend, weight: Stored, source: np.ndarray, columns: np.ndarray | None = None) -> np.ndarray:
    """source . weight, all rows in one step."""
    rows = len(source)
    table, x, y = floats(source), Buffer("source", weight.k), Buffer("y", weight.n)
    packed = backend.matrix(weight.encoding, weight.raw, weight.n, weight.k, columns=columns)
    plan = recorded(Embed(table.on(backend), x), Embed(floats(np.zeros((rows, weight.n))).on(backend), y),
                    Project(0, x, packed, y), filler_head(backend, x))
    ran = Ran(backend, plan, rows=rows)
    ran.run(range(rows))
    return ran.read(y)


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize(("n", "k"), [(1, 256), (33, 512), (70, 768)])
def test_the_same_bits_everywhere_and_close_to_the_oracle(native: Native, name: str, n: int, k: int) -> None:
    weight = random_file(name, n, k)
    source = np.random.default_rng(3).standard_normal((67, k)).astype(np.float32)
    reference = project(native(usable_isas()[0]), weight, source)
    for isa in usable_isas()[1:]:
        assert_same_bits(project(native(isa), weight, source), reference, isa)
    for rows in (1, 5, 7, 63):  # 64 and more rows unpack weights first
        assert_same_bits(project(native(usable_isas()[-1]), weight, source[:rows]), reference[:rows], f"{rows} rows")
    # Both round some three times a group; terms may cancel, so the bound is of their absolute sum.
    codes, scales, minima = split(weight.encoding, weight.raw, k)
    group = weight.encoding.group_of(k)
    part = min(group, 32)
    q, act, scaled = quantize(source, part, scaled=64 if weight.encoding.scaled_by_row else 32)
    scales, minima = (None if x is None else np.repeat(x, group // part, axis=1)[:, : k // part]
                      for x in (scales, minima))
    of_parts = codes.reshape(n, -1, part).astype(np.float64)
    if weight.encoding.offset == "zero_points":  # which the kernels take off in a sum of its own
        q, of_parts = np.abs(q), np.abs(of_parts) + 2 ** weight.encoding.bits
    dots = np.einsum("rgi,ngi->grn", q, of_parts)
    bound = np.abs(dots * act.T[:, :, None] * scales.T[:, None, :]).sum(axis=0)
    if minima is not None:
        bound += np.abs(scaled.T[:, :, None] * minima.T[:, None, :]).sum(axis=0)
    error = np.abs(project(NumpyBackend(), weight, source).astype(np.float64) - reference)
    assert (error <= 2.0**-24 * (4 * k / part + 8) * bound + 1e-30).all()


@pytest.mark.parametrize("name", QUANTS)
def test_integer_sums_are_exact(native: Native, isa: str, name: str) -> None:
    """Scales of one and activations that quantize to themselves: the sums of integers, exactly."""
    weight, rng = random_file(name, 33, 512, unit=True), np.random.default_rng(5)
    source = rng.integers(-3, 4, (66, 512)).astype(np.float32)
    source[:, ::32] = 127  # in groups of 64, too
    if name.startswith("int8"):
        source = np.sign(source) * 127 * (np.abs(source) == 3)  # the sums stay below 2^24
        source[:, ::32] = 127
    exact = source.astype(np.float64) @ weight.values().astype(np.float64).T
    assert np.abs(exact).max() < 2**24
    assert_same_bits(project(native(isa), weight, source), exact.astype(np.float32) + 0)


@pytest.mark.parametrize("name", [*QUANTS, *FP8])
def test_a_row_read_back_is_what_the_file_says(native: Native, isa: str, name: str) -> None:
    weight, backend = random_file(name, 70, 512), native(isa)
    x = Buffer("x", 512)
    ran = Ran(backend, recorded(Embed(weight.on(backend), x), filler_head(backend, x)), rows=70)
    ran.run(range(70))
    assert_same_bits(ran.read(x), weight.values())


@pytest.mark.parametrize("name", [*QUANTS, *FP8])
def test_packed_bytes(native: Native, name: str) -> None:
    """At most 1.06 times the file's; fewer bits than 4 are kept in wider codes."""
    weight = random_file(name, 64, 4096)
    ratio = weight.on(native()).nbytes / weight.raw.nbytes
    assert ratio <= {"Q2_K": 2.0, "Q3_K": 1.35, "TQ1_0": 2.41, "TQ2_0": 1.98}.get(name, 1.06)


@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize(("n", "k"), [(1, 32), (33, 576), (70, 768)])
def test_fp8_is_the_same_everywhere_and_close_to_the_oracle(native: Native, name: str, n: int, k: int) -> None:
    weight = random_file(name, n, k)
    source = np.random.default_rng(3).standard_normal((13, k)).astype(np.float32)
    reference = project(native(usable_isas()[0]), weight, source)
    for isa in usable_isas()[1:]:
        assert_same_bits(project(native(isa), weight, source), reference, isa)
    for rows in (1, 5, 7):
        assert_same_bits(project(native(usable_isas()[-1]), weight, source[:rows]), reference[:rows], f"{rows} rows")
    bound = np.abs(source).astype(np.float64) @ np.abs(weight.values()).T
    error = np.abs(project(NumpyBackend(), weight, source).astype(np.float64) - reference)
    assert (error <= 2.0**-24 * (2 * k + 8) * bound).all()


def test_fp8_numbers_arrive_exactly(native: Native, isa: str) -> None:
    """Every E4M3 number times a power of two, subnormal ones too: a row with one element that is not zero."""
    codes = np.array([c for c in range(256) if c & 127 != 127], np.uint8)
    rows = join(np.full((len(codes), 1), 0.25, np.float32), np.tile(codes[:, None], 32))
    weight = Stored(encoding("fp8-row-f32"), rows, len(codes), 32)
    assert_same_bits(project(native(isa), weight, np.eye(32, dtype=np.float32)),
                     np.tile(E4M3[codes] * np.float32(0.25), (32, 1)) + 0)


@pytest.mark.parametrize("name", ["int4z-g128-f16", "int8-row-f32", "Q4_0", "Q6_K", "nvfp4"])
def test_columns_in_another_order(native: Native, isa: str, name: str) -> None:
    weight, rng = random_file(name, 33, 512), np.random.default_rng(5)
    source, columns = rng.standard_normal((9, 512)).astype(np.float32), rng.permutation(512).astype(np.int32)
    ordered = project(native(isa), weight, np.ascontiguousarray(source[:, columns]))
    for rows in (9, 3):  # shared among threads, and for each thread
        assert_same_bits(project(native(isa), weight, source[:rows], columns), ordered[:rows])
    expected = project(NumpyBackend(), weight, np.ascontiguousarray(source[:, columns]))
    assert_same_bits(project(NumpyBackend(), weight, source, columns), expected)


@pytest.mark.parametrize(("name", "at", "bad"), [
    ("Q4_0", 0, b"\x00\x7c"), ("Q4_1", 2, b"\x01\xfe"), ("Q6_K", 208, b"\x00\x7e"), ("Q4_K", 2, b"\x00\xfc"),
    ("MXFP4", 0, b"\xff"), ("int4-g32-bf16", 0, b"\xc0\x7f"), ("int8-row-f32", 0, b"\x00\x00\x80\x7f"),
    ("nvfp4", 4, b"\x7f"), ("fp8-g128-f32", 4, b"\x00\x00\xc0\xff"), ("fp8-g128-f32", 40, b"\xff"),
    ("TQ2_0", 64, b"\x00\x7c")])
def test_a_scale_that_is_not_finite_is_refused(native: Native, name: str, at: int, bad: bytes) -> None:
    weight = random_file(name, 33, 512)
    weight.raw[32, at : at + len(bad)] = list(bad)
    for backend in (native(), NumpyBackend()):
        with pytest.raises(ModelFileError, match="a scale is not finite"):
            weight.on(backend)
