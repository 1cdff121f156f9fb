"""Encodes float32 to K-quants: in each group of a super-block of 256, every element is rounded to the nearest of the
codes that span the group. ggml's quantizers also search for scales with a smaller error, so their bits differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drut.formats.planes import F32, U8

SCALES = 63  # the largest scale, and minimum, of Q4_K and Q5_K


def q4_k(x: F32) -> U8:
    """Encodes (blocks, 256) to (blocks, 144): d, dmin, 12 bytes of scales and minima, nibbles."""
    head, codes = _with_minima(x, 15)
    return np.concatenate([head, _two_groups(codes)], axis=1)


def q5_k(x: F32) -> U8:
    """Encodes (blocks, 256) to (blocks, 176): as `q4_k`, with the fifth bits before the nibbles; bit g of each byte
    belongs to group g."""
    head, codes = _with_minima(x, 31)
    fifth = np.packbits(codes >> 4, axis=1, bitorder="little")[:, 0]
    return np.concatenate([head, fifth, _two_groups(codes)], axis=1)


def q6_k(x: F32) -> U8:
    """Encodes (blocks, 256) to (blocks, 210): nibbles, pairs of bits, 16 signed scales, d."""
    groups = x.reshape(-1, 16, 16)
    farthest = np.take_along_axis(groups, np.abs(groups).argmax(axis=2, keepdims=True), axis=2)[..., 0]
    scales = farthest / np.float32(-32)
    largest = np.take_along_axis(scales, np.abs(scales).argmax(axis=1, keepdims=True), axis=1)
    d = (largest / np.float32(-128)).astype(np.float16)
    small = _nearest(scales, d.astype(np.float32)).clip(-128, 127).astype(np.int8)
    step = d.astype(np.float32) * small
    codes = (_nearest(groups, step[..., None]).clip(-32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low, pairs = codes & 15, np.array([0, 2, 4, 6], np.uint8)[:, None]
    nibbles = low[:, :, :2].reshape(-1, 128) | low[:, :, 2:].reshape(-1, 128) << 4
    high = np.bitwise_or.reduce(codes >> 4 << pairs, axis=2).reshape(-1, 64)
    return np.concatenate([nibbles, high, small.view(np.uint8), d.view(np.uint8)], axis=1)


def _with_minima(x: F32, top: int) -> tuple[U8, U8]:
    """Returns the 16 bytes before the codes, and codes 0..top, (blocks, 8, 32). An element is d * scale * code - dmin *
    min."""
    groups = x.reshape(-1, 8, 32)
    low = np.minimum(groups.min(axis=2), np.float32(0))
    spread = (groups.max(axis=2) - low) / np.float32(top)
    d, scales = _shared(spread)
    dmin, minima = _shared(-low)
    step, least = d.astype(np.float32) * scales, dmin.astype(np.float32) * minima
    codes = _nearest(groups + least[..., None], step[..., None]).clip(0, top).astype(np.uint8)
    return np.concatenate([d.view(np.uint8), dmin.view(np.uint8), _six_bits(scales, minima)], axis=1), codes


def _shared(values: F32) -> tuple[NDArray[np.float16], U8]:
    """Returns values of 8 groups, none negative, as one f16 and integers of 6 bits."""
    d = (values.max(axis=1, keepdims=True) / np.float32(SCALES)).astype(np.float16)
    return d, _nearest(values, d.astype(np.float32)).clip(0, SCALES).astype(np.uint8)


def _six_bits(scales: U8, minima: U8) -> U8:
    """Packs eight scales and eight minima in 12 bytes: the last four of each are in the third four bytes and in the
    free bits of the first eight."""
    first, last = (scales[:, :4], minima[:, :4]), (scales[:, 4:], minima[:, 4:])
    free = [a | b >> 4 << 6 for a, b in zip(first, last, strict=True)]
    return np.concatenate([*free, last[0] & 15 | (last[1] & 15) << 4], axis=1)


def _two_groups(codes: U8) -> U8:
    """Packs the low four bits of codes: groups 2i in the low halves of bytes, 2i + 1 in the high halves."""
    return np.asarray((codes[:, ::2] & 15 | codes[:, 1::2] << 4).reshape(-1, 128), np.uint8)


def _nearest(x: F32, step: Any) -> F32:
    """Returns x / step rounded to the nearest integer, ties to even; 0 if the step is 0."""
    return np.rint(np.where(step == 0, np.float32(0), x / step))
