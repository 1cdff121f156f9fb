"""Decoding against `gguf`'s own, bit for bit, on random bytes."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from drut.errors import UnsupportedError
from drut.formats.decode import decode, split
from drut.formats.encoding import ENCODINGS, encoding


@pytest.mark.parametrize("name", list(ENCODINGS))
@pytest.mark.parametrize(("n", "count"), [(1, 1), (7, 2), (3, 18)])
def test_decode_is_what_gguf_decodes(name: str, n: int, count: int) -> None:
    """Scales of all kinds among them: subnormal, infinite, NaN, of either sign."""
    enc = encoding(name)
    k = count * max(enc.block, 32)
    for seed in range(20):
        raw = np.random.default_rng([n, k, seed]).integers(0, 256, (n, enc.row_bytes(k)), np.uint8)
        with np.errstate(all="ignore"):
            expected = quants.dequantize(raw, GGMLQuantizationType[name])
        actual = decode(enc, raw, k)
        assert actual.shape == expected.shape == (n, k)
        assert actual.dtype == expected.dtype == np.float32
        same = (actual.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(actual) & np.isnan(expected))
        assert same.all()


@pytest.mark.parametrize("name", [name for name in ENCODINGS if not encoding(name).is_float])
def test_split_parts_make_the_whole(name: str) -> None:
    enc = encoding(name)
    raw = np.random.default_rng(1).integers(0, 60, (5, enc.row_bytes(512)), np.uint8)  # every half is finite
    codes, scale, minimum = split(enc, raw, 512)
    assert (codes.shape, codes.dtype, scale.shape) == ((5, 512), np.int8, (5, 512 // enc.group))
    whole = codes * np.repeat(scale, enc.group, axis=1)
    if minimum is not None:
        whole = whole + np.repeat(minimum, enc.group, axis=1)
    assert (whole == decode(enc, raw, 512)).all()


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
    sizes = {name: encoding(name).row_bytes(256) for name in ENCODINGS}
    assert sizes == {"F32": 1024, "F16": 512, "BF16": 512, "Q4_0": 144, "Q4_1": 160, "Q5_0": 176, "Q5_1": 192,
                     "Q8_0": 272, "Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210, "IQ4_NL": 144,
                     "MXFP4": 136, "IQ4_XS": 136, "TQ1_0": 54, "TQ2_0": 66}
    assert encoding("Q4_1").bits_per_weight == 5.0
    with pytest.raises(ValueError, match="blocks of 32 elements; a row of 50"):
        encoding("Q4_0").row_bytes(50)


def test_an_unknown_quantization_is_named() -> None:
    with pytest.raises(UnsupportedError, match="'IQ3_S'"):
        encoding("IQ3_S")
