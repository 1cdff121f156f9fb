"""Every quantized encoding from a file's bytes through packing and kernels, against the oracle and against itself."""

from __future__ import annotations

import numpy as np
import pytest

from drut.formats.decode import split
from drut.formats.encoding import ENCODINGS
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.numbers import quantize
from drut.kernels.ops import Buffer, Embed, Project
from tests.kernels.conftest import Native
from tests.kernels.rig import Ran, Stored, assert_same_bits, filler_head, floats, recorded, usable_isas

QUANTS = [name for name, enc in ENCODINGS.items() if not enc.is_float]
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q4_1": (0, 2),
          "Q5_1": (0, 2), "MXFP4": ()}  # where a block keeps its f16 scale and minimum; at its start if not said


def random_file(name: str, n: int, k: int, *, unit: bool = False) -> Stored:
    """Random codes and small scales; f16 scales around a thirtieth, or all one."""
    enc, rng = ENCODINGS[name], np.random.default_rng([n, k])
    blocks = rng.integers(0, 256, (n, k // enc.block, enc.block_bytes), np.uint8)
    for at in HALVES.get(name, (0,)):
        scales = np.ones(blocks.shape[:2]) if unit else rng.uniform(0.02, 0.05, blocks.shape[:2])
        blocks[:, :, at : at + 2] = scales.astype(np.float16)[..., None].view(np.uint8)
    if name == "MXFP4":
        blocks[:, :, 0] = 128 if unit else rng.integers(60, 130, blocks.shape[:2])
    return Stored(enc, blocks.reshape(n, -1), n, k)


def project(backend, weight: Stored, source: np.ndarray) -> np.ndarray:
    """source . weight, all rows in one step."""
    rows = len(source)
    table, x, y = floats(source), Buffer("source", weight.k), Buffer("y", weight.n)
    plan = recorded(Embed(table.on(backend), x), Embed(floats(np.zeros((rows, weight.n))).on(backend), y),
                    Project(0, x, weight.on(backend), y), filler_head(backend, x))
    ran = Ran(backend, plan, rows=rows)
    ran.run(range(rows))
    return ran.read(y)


@pytest.mark.parametrize("name", QUANTS)
@pytest.mark.parametrize(("n", "k"), [(1, 256), (33, 512), (70, 768)])
def test_the_same_bits_everywhere_and_close_to_the_oracle(native: Native, name: str, n: int, k: int) -> None:
    weight = random_file(name, n, k)
    source = np.random.default_rng(3).standard_normal((13, k)).astype(np.float32)
    reference = project(native(usable_isas()[0]), weight, source)
    for isa in usable_isas()[1:]:
        assert_same_bits(project(native(isa), weight, source), reference, isa)
    for rows in (1, 5, 7):
        assert_same_bits(project(native(usable_isas()[-1]), weight, source[:rows]), reference[:rows], f"{rows} rows")
    # Both round some three times a group; terms may cancel, so the bound is of their absolute sum.
    codes, scales, minima = split(weight.encoding, weight.raw, k)
    q, act, scaled = quantize(source, weight.encoding.group)
    dots = np.einsum("rgi,ngi->grn", q, codes.reshape(n, -1, weight.encoding.group).astype(np.float64))
    bound = np.abs(dots * act.T[:, :, None] * scales.T[:, None, :]).sum(axis=0)
    if minima is not None:
        bound += np.abs(scaled.T[:, :, None] * minima.T[:, None, :]).sum(axis=0)
    error = np.abs(project(NumpyBackend(), weight, source).astype(np.float64) - reference)
    assert (error <= 2.0**-24 * (4 * k / weight.encoding.group + 8) * bound + 1e-30).all()


@pytest.mark.parametrize("name", QUANTS)
def test_integer_sums_are_exact(native: Native, isa: str, name: str) -> None:
    """Scales of one and activations that quantize to themselves: the sums of integers, exactly."""
    weight, rng = random_file(name, 33, 512, unit=True), np.random.default_rng(5)
    source = rng.integers(-3, 4, (9, 512)).astype(np.float32)
    source[:, ::32] = 127
    exact = source.astype(np.float64) @ weight.values().astype(np.float64).T
    assert np.abs(exact).max() < 2**24
    assert_same_bits(project(native(isa), weight, source), exact.astype(np.float32) + 0)


@pytest.mark.parametrize("name", QUANTS)
def test_a_row_read_back_is_what_the_file_says(native: Native, isa: str, name: str) -> None:
    weight, backend = random_file(name, 70, 512), native(isa)
    x = Buffer("x", 512)
    ran = Ran(backend, recorded(Embed(weight.on(backend), x), filler_head(backend, x)), rows=70)
    ran.run(range(70))
    assert_same_bits(ran.read(x), weight.values())


@pytest.mark.parametrize("name", QUANTS)
def test_packed_bytes(native: Native, name: str) -> None:
    """At most 1.06 times the file's; 2 and 3 bits are kept in wider codes."""
    weight = random_file(name, 64, 512)
    ratio = weight.on(native()).nbytes / weight.raw.nbytes
    assert ratio <= {"Q2_K": 2.0, "Q3_K": 1.35}.get(name, 1.06)
