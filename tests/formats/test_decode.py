"""Decoding against `gguf`'s own, bit for bit, on random bytes."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from drut.errors import UnsupportedError
from drut.formats.decode import decode, split
from drut.formats.encoding import ENCODINGS, encoding


@pytest.mark.parametrize("name", list(ENCODINGS))
@pytest.mark.parametrize(("n", "k"), [(1, 32), (7, 64), (3, 576)])
def test_decode_is_what_gguf_decodes(name: str, n: int, k: int) -> None:
    """Scales of all kinds among them: subnormal, infinite, NaN, of either sign."""
    enc = encoding(name)
    for seed in range(20):
        raw = np.random.default_rng([n, k, seed]).integers(0, 256, (n, enc.row_bytes(k)), np.uint8)
        with np.errstate(all="ignore"):
            expected = quants.dequantize(raw, GGMLQuantizationType[name])
        actual = decode(enc, raw, k)
        assert actual.shape == expected.shape == (n, k)
        assert actual.dtype == expected.dtype == np.float32
        same = (actual.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(actual) & np.isnan(expected))
        assert same.all()


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_split_parts_make_the_whole(name: str) -> None:
    enc = encoding(name)
    raw = np.random.default_rng(1).integers(0, 60, (5, enc.row_bytes(96)), np.uint8)  # every half is finite
    codes, scale, minimum = split(enc, raw, 96)
    assert (codes.shape, codes.dtype, scale.shape) == ((5, 96), np.int8, (5, 3))
    whole = codes * np.repeat(scale, 32, axis=1)
    if minimum is not None:
        whole = whole + np.repeat(minimum, 32, axis=1)
    assert (whole == decode(enc, raw, 96)).all()


def test_extreme_codes_and_scales() -> None:
    def half(x: float) -> np.ndarray:
        return np.array([x], np.float16).view(np.uint8)

    every_code = np.arange(-16, 16, dtype=np.int8)
    for scale in (65504.0, 2.0**-24, -1.0):
        raw = np.concatenate([half(scale), every_code.view(np.uint8)])
        assert decode(encoding("Q8_0"), raw, 32)[0].tolist() == [scale * code for code in range(-16, 16)]
        raw = np.concatenate([half(scale), np.arange(16, dtype=np.uint8) * 17])
        assert decode(encoding("Q4_0"), raw, 32)[0].tolist() == [scale * (code - 8) for code in range(16)] * 2
        raw = np.concatenate([half(scale), half(3.0), np.arange(16, dtype=np.uint8) * 17])
        sums = [float(np.float32(scale * code + 3)) for code in range(16)]
        assert decode(encoding("Q4_1"), raw, 32)[0].tolist() == sums * 2


def test_sizes() -> None:
    assert [encoding(name).row_bytes(64) for name in ENCODINGS] == [256, 128, 128, 36, 40, 68]
    assert encoding("Q4_1").bits_per_weight == 5.0
    with pytest.raises(ValueError, match="blocks of 32 elements; a row of 50"):
        encoding("Q4_0").row_bytes(50)


def test_an_unknown_quantization_is_named() -> None:
    with pytest.raises(UnsupportedError, match="'Q3_K'"):
        encoding("Q3_K")
