"""Decodes each encoding: bytes to float32, in NumPy. This is the reference definition for packings and kernels.

Every splitter takes blocks (rows, blocks per row, block bytes) and returns signed codes, the scale of each group, and
its minimum or None; `decode` combines them. Layouts are those of the GGUF format, checked in tests against `gguf`;
`drut.formats.planes` reads planes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import E2M1_TABLE, IQ4_NL_TABLE, Encoding
from drut.formats.planes import F32, U8, Split, split_fp8, split_planes


@np.errstate(over="ignore", invalid="ignore")
def decode(enc: Encoding, raw: U8, k: int) -> F32:
    """Returns the rows of `k` elements in `raw`, any number of them: float32 of shape (rows, k)."""
    rows = raw.reshape(-1, enc.row_bytes(k))
    if enc.name == "F32":
        return rows.view(np.float32).copy()
    if enc.name == "F16":
        return rows.view(np.float16).astype(np.float32)
    if enc.name == "BF16":
        return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if enc.is_float:
        floats, scales = split_fp8(enc, rows, k)
        return floats * np.repeat(scales, enc.group_of(k), axis=1)[:, :k]
    codes, scales, minima = split(enc, raw, k)
    values = codes.astype(np.float32).reshape(len(rows), -1, enc.group_of(k)) * scales[:, :, None]
    if minima is not None:
        values += minima[:, :, None]
    return values.reshape(len(rows), k)


@np.errstate(over="ignore", invalid="ignore")
def split(enc: Encoding, raw: U8, k: int) -> Split:
    """Returns the rows of a quantized tensor as codes, scales and minima."""
    if not enc.block_bytes:
        return split_planes(enc, raw.reshape(-1, enc.row_bytes(k)), k)
    blocks = raw.reshape(-1, k // enc.block, enc.block_bytes)
    codes, scales, minima = _SPLITTERS[enc.name](blocks)
    rows = len(blocks)
    return Split(codes.reshape(rows, k), scales.reshape(rows, -1).astype(np.float32),
                 None if minima is None else minima.reshape(rows, -1).astype(np.float32))


Parts = tuple[NDArray[np.int8], F32, F32 | None]


def _half(blocks: U8, at: int) -> F32:
    """Returns the f16 at byte `at` of each block, as (rows, blocks, 1)."""
    return blocks[:, :, at : at + 2].copy().view(np.float16).astype(np.float32)


def _nibbles(bytes_: U8) -> U8:
    """Returns all low nibbles, then all high nibbles."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], axis=-1)


def _signed(codes: NDArray[Any], zero: int) -> NDArray[np.int8]:
    return codes.astype(np.int8) - np.int8(zero)


def _fifth_bits(blocks: U8, at: int) -> U8:
    """Returns bit j of the 32-bit word at `at`, as 16 if it is set, for j = 0..31."""
    return np.asarray(np.unpackbits(blocks[:, :, at : at + 4], axis=-1, bitorder="little") << 4, np.uint8)


def _q4_0(b: U8) -> Parts:
    return _signed(_nibbles(b[:, :, 2:]), 8), _half(b, 0), None


def _q4_1(b: U8) -> Parts:
    return _signed(_nibbles(b[:, :, 4:]), 0), _half(b, 0), _half(b, 2)


def _q5_0(b: U8) -> Parts:
    return _signed(_nibbles(b[:, :, 6:]) | _fifth_bits(b, 2), 16), _half(b, 0), None


def _q5_1(b: U8) -> Parts:
    return _signed(_nibbles(b[:, :, 8:]) | _fifth_bits(b, 4), 0), _half(b, 0), _half(b, 2)


def _q8_0(b: U8) -> Parts:
    return b[:, :, 2:].view(np.int8), _half(b, 0), None


def _iq4_nl(b: U8) -> Parts:
    return np.array(IQ4_NL_TABLE, np.int8)[_nibbles(b[:, :, 2:])], _half(b, 0), None


def _mxfp4(b: U8) -> Parts:
    """Decodes MXFP4. The scale is 2^(e - 128), half of E8M0's, because the table has doubled values."""
    scale = np.ldexp(np.float32(1), b[:, :, :1].astype(np.int32) - 128).astype(np.float32)
    return np.array(E2M1_TABLE, np.int8)[_nibbles(b[:, :, 1:])], scale, None


def _crumbs(bytes_: U8) -> U8:
    """Returns (..., n) bytes as (..., 4, n) fields of two bits, the lowest first."""
    return np.asarray(bytes_[..., None, :] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3, np.uint8)


def _halves(b: U8, begin: int, end: int) -> U8:
    """Returns bytes begin..end as the two halves of the super-block, (rows, blocks, 2, bytes)."""
    return b[:, :, begin:end].reshape(*b.shape[:2], 2, -1)


def _q2_k(b: U8) -> Parts:
    codes = _crumbs(_halves(b, 16, 80))
    return _signed(codes, 0), _half(b, 80) * (b[:, :, :16] & 15), -(_half(b, 82) * (b[:, :, :16] >> 4))


def _q3_k(b: U8) -> Parts:
    high = np.unpackbits(b[:, :, :32, None], axis=-1, bitorder="little").swapaxes(2, 3)  # (rows, blocks, 8, 32)
    codes = _crumbs(_halves(b, 32, 96)) | high.reshape(*b.shape[:2], 2, 4, 32) << 2
    low = np.concatenate([b[:, :, 96:104] & 15, b[:, :, 96:104] >> 4], axis=-1)
    top = _crumbs(b[:, :, 104:108]).reshape(*b.shape[:2], 16)
    scales = (low | top << 4).astype(np.float32) - 32
    return _signed(codes, 4), _half(b, 108) * scales, None


def _k_scales(b: U8) -> tuple[U8, U8]:
    """Returns eight 6-bit scales and eight 6-bit minima of the 12 bytes after the two halves of Q4_K and Q5_K."""
    low, middle, high = b[:, :, 4:8], b[:, :, 8:12], b[:, :, 12:16]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=-1)
    minima = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], axis=-1)
    return scales, minima


def _q4_k(b: U8) -> Parts:
    scales, minima = _k_scales(b)
    codes = _nibbles(b[:, :, 16:].reshape(*b.shape[:2], 4, 32))
    return _signed(codes, 0), _half(b, 0) * scales, -(_half(b, 2) * minima)


def _q5_k(b: U8) -> Parts:
    scales, minima = _k_scales(b)
    high = np.unpackbits(b[:, :, 16:48, None], axis=-1, bitorder="little").swapaxes(2, 3)
    codes = _nibbles(b[:, :, 48:].reshape(*b.shape[:2], 4, 32)).reshape(*b.shape[:2], 8, 32) | high << 4
    return _signed(codes, 0), _half(b, 0) * scales, -(_half(b, 2) * minima)


def _q6_k(b: U8) -> Parts:
    low = _halves(b, 0, 128)  # (rows, blocks, 2, 64): quarters 0 and 1 in the low nibbles, 2 and 3 in the high ones
    codes = _nibbles(low).reshape(*b.shape[:2], 2, 4, 32) | _crumbs(_halves(b, 128, 192)) << 4
    return _signed(codes, 32), _half(b, 208) * b[:, :, 192:208].view(np.int8), None


def _iq4_xs(b: U8) -> Parts:
    pairs = np.array([0, 2, 4, 6], np.uint8)
    high = (b[:, :, 2:4, None] >> pairs & 3).reshape(*b.shape[:2], 8)
    low = np.stack([b[:, :, 4:8] & 15, b[:, :, 4:8] >> 4], axis=-1).reshape(*b.shape[:2], 8)
    scales = (low | high << 4).astype(np.float32) - 32
    codes = _nibbles(b[:, :, 8:].reshape(*b.shape[:2], 8, 16))
    return np.array(IQ4_NL_TABLE, np.int8)[codes], _half(b, 0) * scales, None


def _tq1_0(b: U8) -> Parts:
    """Decodes TQ1_0. A byte holds five digits to base 3, or four, as a fraction of 256; digits of one place are
    adjacent."""
    def digits(part: U8, count: int) -> U8:
        shifted = part[..., None, :] * np.array([1, 3, 9, 27, 81], np.uint8)[:count, None]
        return (shifted.astype(np.uint16) * 3 >> 8).astype(np.uint8).reshape(*b.shape[:2], -1)

    codes = [digits(b[:, :, :32], 5), digits(b[:, :, 32:48], 5), digits(b[:, :, 48:52], 4)]
    return _signed(np.concatenate(codes, axis=-1), 1), _half(b, 52), None


def _tq2_0(b: U8) -> Parts:
    return _signed(_crumbs(_halves(b, 0, 64)), 1), _half(b, 64), None


_SPLITTERS: dict[str, Callable[[U8], Parts]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "IQ4_NL": _iq4_nl, "MXFP4": _mxfp4,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs, "TQ1_0": _tq1_0, "TQ2_0": _tq2_0,
}
