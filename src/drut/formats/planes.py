"""Reads and writes rows stored as planes: scales, zero points, codes, one after another.

    int4, int8   a scale for each group, of the encoding's type; an int8 zero point for each, if there are any; codes
                 without sign, two of 4 bits in a byte, the lower first
    fp8          a scale for each group; E4M3 codes
    nvfp4        a float32 for the row; an E4M3 scale for each 16 elements; E2M1 codes, the lower first
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import E2M1_TABLE, SCALE_BYTES, Encoding

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


class Split(NamedTuple):
    """Codes (rows, k) minus zero point or after the table lookup; scales and minima (rows, groups).

    Codes are int8, or int16 if each group has its own zero point.
    """

    codes: NDArray[np.int8] | NDArray[np.int16]
    scales: F32
    minima: F32 | None


def _e4m3() -> F32:
    """Returns all E4M3 numbers by byte (OCP 8-bit floating point): bias 7, no infinities, NaN if all bits are set."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    size[(byte & 127) == 127] = np.nan
    return np.where(byte < 128, size, -size).astype(np.float32)


E4M3 = _e4m3()


def widen(stored: U8, scale: str) -> F32:
    """Returns the numbers of a plane of scales, exactly: (..., bytes) as (..., numbers)."""
    stored = np.ascontiguousarray(stored)
    if scale == "f16":
        return stored.view(np.float16).astype(np.float32)
    if scale == "bf16":
        return (stored.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return stored.view(np.float32)


def split_fp8(enc: Encoding, rows: U8, k: int) -> tuple[F32, F32]:
    """Returns the E4M3 numbers (rows, k) and their scales (rows, groups)."""
    at = enc.groups(k) * SCALE_BYTES[enc.scale]
    return E4M3[rows[:, at:]], widen(rows[:, :at], enc.scale)


def split_planes(enc: Encoding, rows: U8, k: int) -> Split:
    """Returns the parts of int4, int8 and nvfp4 rows."""
    if enc.scale == "e4m3":
        return _split_nvfp4(rows, k)
    groups = enc.groups(k)
    at = groups * SCALE_BYTES[enc.scale]
    scales = widen(rows[:, :at], enc.scale)
    zeros = rows[:, at : at + groups].view(np.int8)
    stored = rows[:, at + groups * (enc.offset == "zero_points") :]
    codes = pairs(stored).view(np.int8) - np.int8(8) if enc.bits == 4 else (stored ^ 128).view(np.int8)
    if enc.offset != "zero_points":
        return Split(codes, scales, None)
    return Split(codes.astype(np.int16) - np.repeat(zeros, enc.group_of(k), axis=1)[:, :k], scales, None)


def _split_nvfp4(rows: U8, k: int) -> Split:
    """Returns the parts of nvfp4 rows. Scales are halved, because the table has doubled values."""
    whole, fine, codes = np.split(rows, [4, 4 + k // 16], axis=1)
    scales = E4M3[fine] * (widen(whole, "f32") * np.float32(0.5))
    return Split(np.array(E2M1_TABLE, np.int8)[pairs(codes)], scales, None)


def pairs(bytes_: U8) -> U8:
    """Returns (rows, n) bytes as (rows, 2n) codes of 4 bits, the lower first."""
    out = np.empty((*bytes_.shape, 2), np.uint8)
    np.bitwise_and(bytes_, 15, out=out[..., 0])
    np.right_shift(bytes_, 4, out=out[..., 1])
    return out.reshape(*bytes_.shape[:-1], -1)


def join(*parts: NDArray[Any]) -> U8:
    """Joins planes, each (rows, n) of any type, to rows."""
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8).reshape(len(part), -1) for part in parts], axis=1)


def joined_int4(codes: NDArray[np.int8], scales: NDArray[np.float16]) -> U8:
    """Joins signed codes of -8..7 (rows, k) and their scales (rows, groups) to rows of int4."""
    nibbles = (codes + np.int8(8)).view(np.uint8)
    return join(scales, nibbles[:, ::2] | nibbles[:, 1::2] << 4)
