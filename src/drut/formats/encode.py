"""Encodes float32 to stored codes, each element rounded to the nearest code, as ggml's reference quantizers do.

For finite numbers the bits equal ggml's, which tests against `gguf` check; K-quants (`encode_k.py`) differ. ggml has no
W8A8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drut.errors import UnsupportedError
from drut.formats.encode_k import q4_k, q5_k, q6_k
from drut.formats.encoding import W8A8, Encoding
from drut.formats.planes import F32, U8, join


def encode(enc: Encoding, values: F32) -> U8:
    """Encodes rows (n, k) to (n, row bytes). Raises UnsupportedError for an encoding that cannot be written here.

    Raises ValueError if a row is not whole blocks.
    """
    if enc.name not in ENCODERS:
        raise UnsupportedError(f"{enc.name} cannot be written (can be: {', '.join(ENCODERS)})")
    values = np.ascontiguousarray(values, np.float32)
    row_bytes = enc.row_bytes(values.shape[1])
    blocks = values.reshape(-1, enc.block) if enc.block_bytes else values  # a scale for a row takes it whole
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return ENCODERS[enc.name](blocks).reshape(len(values), row_bytes)


def _bytes(x: NDArray[Any]) -> U8:
    return np.ascontiguousarray(x).view(np.uint8)


def _half(x: F32) -> U8:
    return _bytes(x.astype(np.float16))


def _bf16(x: F32) -> U8:
    """Rounds to the nearest bf16, ties to even; a NaN becomes quiet."""
    bits = x.view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return _bytes(np.where(np.isnan(x), bits >> 16 | 0x40, rounded).astype(np.uint16))


def _inverse(d: F32) -> F32:
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


def _nibbles(codes: U8) -> U8:
    """Packs 32 codes: the first 16 in the low halves of bytes, the others in the high halves."""
    return np.asarray(codes[:, :16] & 15 | codes[:, 16:] << 4, np.uint8)


def _fifth(codes: U8) -> U8:
    return np.packbits(codes >> 4, axis=1, bitorder="little")


def _around_zero(x: F32, bits: int) -> tuple[U8, F32]:
    """Returns codes and scale such that the element farthest from zero becomes the lowest code."""
    middle = 1 << bits - 1
    farthest = np.take_along_axis(x, np.abs(x).argmax(axis=1, keepdims=True), axis=1)
    d = farthest / np.float32(-middle)
    return np.trunc(x * _inverse(d) + np.float32(middle + 0.5)).astype(np.uint8).clip(0, 2 * middle - 1), d


def _between(x: F32, bits: int) -> tuple[U8, F32, F32]:
    """Returns codes, scale and minimum such that the least element becomes 0 and the largest the highest code."""
    low, top = x.min(axis=1, keepdims=True), (1 << bits) - 1
    d = (x.max(axis=1, keepdims=True) - low) / np.float32(top)
    return np.trunc((x - low) * _inverse(d) + np.float32(0.5)).astype(np.uint8).clip(0, top), d, low


def _q4_0(x: F32) -> U8:
    codes, d = _around_zero(x, 4)
    return np.concatenate([_half(d), _nibbles(codes)], axis=1)


def _q4_1(x: F32) -> U8:
    codes, d, low = _between(x, 4)
    return np.concatenate([_half(d), _half(low), _nibbles(codes)], axis=1)


def _q5_0(x: F32) -> U8:
    codes, d = _around_zero(x, 5)
    return np.concatenate([_half(d), _fifth(codes), _nibbles(codes)], axis=1)


def _q5_1(x: F32) -> U8:
    codes, d, low = _between(x, 5)
    return np.concatenate([_half(d), _half(low), _fifth(codes), _nibbles(codes)], axis=1)


def _q8_0(x: F32) -> U8:
    """Encodes Q8_0. Halves are rounded away from zero."""
    d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    scaled = x * _inverse(d)
    size = np.abs(scaled)
    whole = np.floor(size)
    codes = np.sign(scaled) * (whole + np.floor(2 * (size - whole)))
    return np.concatenate([_half(d), _bytes(codes.astype(np.int8))], axis=1)


def _w8a8(x: F32) -> U8:
    """Encodes whole rows as planes, with a scale such that the element farthest from zero becomes 127 or -127."""
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale != 0)).clip(-127, 127)
    return join(scale, codes.astype(np.int8).view(np.uint8) ^ np.uint8(128))


ENCODERS: dict[str, Callable[[F32], U8]] = {
    "F32": _bytes, "F16": _half, "BF16": _bf16,
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0,
    "Q4_K": q4_k, "Q5_K": q5_k, "Q6_K": q6_k, W8A8.name: _w8a8,
}
