"""The one decode definition of each encoding: bytes to float32, in NumPy. Packings and kernels answer to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import Encoding

F32 = NDArray[np.float32]


@np.errstate(over="ignore", invalid="ignore")
def decode(enc: Encoding, raw: NDArray[np.uint8], k: int) -> F32:
    """Rows of `k` elements out of `raw`, any whole number of them: float32 of shape (rows, k)."""
    rows = raw.reshape(-1, enc.row_bytes(k))
    if enc.name == "F32":
        return rows.view(np.float32).copy()
    if enc.name == "F16":
        return rows.view(np.float16).astype(np.float32)
    if enc.name == "BF16":
        return (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    codes, scale, minimum = split(enc, raw, k)
    values = codes.astype(np.float32).reshape(len(rows), -1, enc.block)
    values = values * scale[:, :, None]
    if minimum is not None:
        values += minimum[:, :, None]
    return values.reshape(len(rows), k)


def split(enc: Encoding, raw: NDArray[np.uint8], k: int) -> tuple[NDArray[np.int8], F32, F32 | None]:
    """Signed codes (rows, k) int8 with the zero point taken off, scales (rows, k/block), and minima or None."""
    blocks = raw.reshape(-1, k // enc.block, enc.block_bytes)
    scale = blocks[:, :, 0:2].copy().view(np.float16)[..., 0].astype(np.float32)
    if enc.name == "Q8_0":
        codes = blocks[:, :, 2:].view(np.int8)
        return codes.reshape(len(blocks), k).copy(), scale, None
    minimum = None
    if enc.name == "Q4_1":
        minimum = blocks[:, :, 2:4].copy().view(np.float16)[..., 0].astype(np.float32)
    nibbles = blocks[:, :, enc.block_bytes - 16 :]
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).astype(np.int8) - np.int8(enc.zero_point)
    return codes.reshape(len(blocks), k), scale, minimum
