"""Rounding to the nearest, bit for bit what the `gguf` package computes where it writes an encoding."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from drut.errors import UnsupportedError
from drut.formats.decode import decode, split
from drut.formats.encode import ENCODERS, encode
from drut.formats.encoding import W8A8, encoding

K_QUANTS = ["Q4_K", "Q5_K", "Q6_K"]


@pytest.mark.parametrize("name", [name for name in ENCODERS if name not in (*K_QUANTS, W8A8.name)])
def test_the_bits_are_those_of_gguf(name: str) -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal((7, 256)).astype(np.float32) * np.float32(10.0) ** rng.integers(-6, 3, (7, 1))
    values = values.astype(np.float32)
    values[0], values[1, 5] = 0, -0.0
    values[2] = np.arange(256) / 2 - 64  # ties
    ours = encode(encoding(name), values)
    if name == "F32":
        assert (ours == values.view(np.uint8)).all()
    else:
        assert (ours == gguf.quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)).all()


@pytest.mark.parametrize(("name", "error"), [("Q4_0", 1 / 8), ("Q4_1", 1 / 15), ("Q5_0", 1 / 16), ("Q5_1", 1 / 31),
                                             ("Q8_0", 1 / 254), ("BF16", 1 / 256), ("F16", 1 / 2048),
                                             ("W8A8", 1 / 254)])
def test_what_was_written_reads_as_about_the_same(name: str, error: float) -> None:
    """Within half a step, or a whole one at the end that has a code less, and what rounding the scale adds."""
    values = np.random.default_rng(2).uniform(-1, 1, (5, 64)).astype(np.float32)
    back = decode(encoding(name), encode(encoding(name), values), 64)
    assert np.abs(back - values).max() <= error * 1.1


@pytest.mark.parametrize(("name", "error"), [("Q4_K", 1 / 15), ("Q5_K", 1 / 31), ("Q6_K", 1 / 32)])
def test_k_quants_are_near_and_read_by_gguf(name: str, error: float) -> None:
    """Within half a step of the block's span, or one at the end with a code less, and what rounding scales adds."""
    rng = np.random.default_rng(3)
    values = rng.uniform(-1, 1, (6, 512)).astype(np.float32)
    values[1] = np.abs(values[1])
    values[2] = -3
    values[3, ::2] = 0
    values[4] *= np.float32(1e-3)
    values[5] = np.repeat(rng.uniform(-1, 1, 32), 16) * rng.uniform(0.9, 1.1, 512)
    stored = encode(encoding(name), values)
    back = decode(encoding(name), stored, 512)
    assert np.array_equal(back, gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[name]))
    spans = np.abs(values).reshape(6, 2, 256).max(axis=2).repeat(256, axis=1)
    assert (np.abs(back - values) / spans).max() <= error * 1.6
    assert np.sqrt(np.mean((back - values) ** 2) / np.mean(values**2)) < error * 0.8


@pytest.mark.parametrize(("name", "low", "top"), [("Q4_K", 0, 15), ("Q5_K", 0, 31), ("Q6_K", -32, 31)])
def test_k_quants_keep_what_they_hold(name: str, low: int, top: int) -> None:
    """Every code in every group, and zeros."""
    codes = np.resize(np.arange(low, top + 1), (1, 256))
    codes[:, ::16] = low if low else top
    values = codes.astype(np.float32) * np.float32(0.5)
    back = decode(encoding(name), encode(encoding(name), values), 256)
    np.testing.assert_allclose(back, values, rtol=2**-10)
    assert not decode(encoding(name), encode(encoding(name), 0 * values), 256).any()


def test_w8a8_has_a_scale_for_a_row_and_codes_of_127_at_most() -> None:
    values = np.random.default_rng(4).standard_normal((6, 96)).astype(np.float32)
    values[0], values[1, 5] = 0, -0.0
    values[2] = np.arange(96) + 0.5 - 48
    values[2, 0] = 127  # a scale of one: ties go to even
    values[3] *= np.float32(2.0**-140)  # subnormal
    values[4] *= np.float32(1e30)
    codes, scales, minima = split(W8A8, encode(W8A8, values), 96)
    top = np.abs(values).max(axis=1, keepdims=True)
    assert minima is None
    assert (scales == top / np.float32(127)).all()
    assert (np.abs(codes).max(axis=1)[[0, 1, 2, 4, 5]] == [0, 127, 127, 127, 127]).all()
    assert np.abs(codes[3]).max() <= 127
    assert codes[2, 1:5].tolist() == [-46, -46, -44, -44]
    normal = [0, 1, 2, 4, 5]
    assert (np.abs(codes * scales.astype(np.float64) - values)[normal] <= (scales[normal] * 0.5001)).all()


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"Q2_K cannot be written \(can be: F32, "):
        encode(encoding("Q2_K"), np.zeros((1, 256), np.float32))
    with pytest.raises(ValueError, match="a row of 40"):
        encode(encoding("Q4_0"), np.zeros((1, 40), np.float32))
