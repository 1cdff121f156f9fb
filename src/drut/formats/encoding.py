"""What the codes of a stored tensor mean. One frozen record an encoding; names are GGUF's.

An encoding is logical: how a block of bytes along K (the reduction axis) becomes numbers. How a backend lays the
same codes out in memory is a packing (`drut.kernels`), and model code sees neither.

Layouts of one block, little endian (source: the GGUF format, `ggml-quants`; checked in tests against `gguf`):
  Q4_0  f16 d | 16 bytes: low nibbles = elements 0..15, high nibbles = 16..31      x = d * (q - 8)
  Q4_1  f16 d | f16 m | 16 bytes, nibbles as in Q4_0                               x = d * q + m
  Q8_0  f16 d | 32 int8                                                            x = d * q
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drut.errors import UnsupportedError


@dataclass(frozen=True)
class Encoding:
    """How `block` consecutive elements of a row are stored in `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int
    bits: int  # code bits of one element (a float's width for float encodings)
    offset: Literal["none", "float_min", "zero_point"] = "none"
    zero_point: int = 0

    @property
    def is_float(self) -> bool:
        return self.block == 1

    @property
    def bits_per_weight(self) -> float:
        return 8.0 * self.block_bytes / self.block

    def row_bytes(self, k: int) -> int:
        """Bytes of one row of `k` elements. Raises ValueError where `k` is not whole blocks."""
        if k % self.block:
            raise ValueError(f"{self.name} stores blocks of {self.block} elements; a row of {k} is not whole blocks")
        return k // self.block * self.block_bytes


ENCODINGS: dict[str, Encoding] = {
    e.name: e
    for e in (
        Encoding("F32", 1, 4, 32),
        Encoding("F16", 1, 2, 16),
        Encoding("BF16", 1, 2, 16),
        Encoding("Q4_0", 32, 18, 4, "zero_point", 8),
        Encoding("Q4_1", 32, 20, 4, "float_min"),
        Encoding("Q8_0", 32, 34, 8),
    )
}


def encoding(name: str) -> Encoding:
    """The encoding called `name`; UnsupportedError names it where there is none."""
    try:
        return ENCODINGS[name]
    except KeyError:
        known = ", ".join(ENCODINGS)
        raise UnsupportedError(f"quantization {name!r} is not supported (supported: {known})") from None
