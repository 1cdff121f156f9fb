"""Rounding to the nearest, bit for bit what the `gguf` package computes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from drut.errors import UnsupportedError
from drut.formats.decode import decode
from drut.formats.encode import ENCODERS, encode
from drut.formats.encoding import encoding


@pytest.mark.parametrize("name", list(ENCODERS))
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
                                             ("Q8_0", 1 / 254), ("BF16", 1 / 256), ("F16", 1 / 2048)])
def test_what_was_written_reads_as_about_the_same(name: str, error: float) -> None:
    """Within half a step, or a whole one at the end that has a code less, and what rounding the scale adds."""
    values = np.random.default_rng(2).uniform(-1, 1, (5, 64)).astype(np.float32)
    back = decode(encoding(name), encode(encoding(name), values), 64)
    assert np.abs(back - values).max() <= error * 1.1


def test_what_cannot_be_written_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"Q4_K cannot be written \(can be: F32, "):
        encode(encoding("Q4_K"), np.zeros((1, 256), np.float32))
    with pytest.raises(ValueError, match="a row of 40"):
        encode(encoding("Q4_0"), np.zeros((1, 40), np.float32))
