"""What the codes of a stored tensor mean. One frozen record an encoding; names are GGUF's.

An encoding is logical: how a block of bytes along K (the reduction axis) becomes numbers. How a backend lays the
same codes out in memory is a packing (`drut.kernels`), and model code sees neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drut.errors import UnsupportedError


@dataclass(frozen=True)
class Encoding:
    """How `block` consecutive elements of a row are stored in `block_bytes` bytes.

    An element is scale * (code - zero) + minimum, or scale * table[code]; a scale (and a minimum, if there are any)
    serves `group` elements. In a super-block of 256 the groups' scales are small integers times a scale of its own.
    """

    name: str
    block: int
    block_bytes: int
    bits: int  # code bits of one element (a float's width for float encodings)
    group: int = 1
    offset: Literal["none", "float_min", "zero_point"] = "none"
    zero_point: int = 0
    table: tuple[int, ...] = ()

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


IQ4_NL_TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4_TABLE = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the E2M1 values; scales are halved

ENCODINGS: dict[str, Encoding] = {
    e.name: e
    for e in (
        Encoding("F32", 1, 4, 32),
        Encoding("F16", 1, 2, 16),
        Encoding("BF16", 1, 2, 16),
        Encoding("Q4_0", 32, 18, 4, 32, "zero_point", 8),
        Encoding("Q4_1", 32, 20, 4, 32, "float_min"),
        Encoding("Q5_0", 32, 22, 5, 32, "zero_point", 16),
        Encoding("Q5_1", 32, 24, 5, 32, "float_min"),
        Encoding("Q8_0", 32, 34, 8, 32),
        Encoding("Q2_K", 256, 84, 2, 16, "float_min"),
        Encoding("Q3_K", 256, 110, 3, 16, "zero_point", 4),
        Encoding("Q4_K", 256, 144, 4, 32, "float_min"),
        Encoding("Q5_K", 256, 176, 5, 32, "float_min"),
        Encoding("Q6_K", 256, 210, 6, 16, "zero_point", 32),
        Encoding("IQ4_NL", 32, 18, 4, 32, table=IQ4_NL_TABLE),
        Encoding("MXFP4", 32, 17, 4, 32, table=MXFP4_TABLE),
    )
}


def encoding(name: str) -> Encoding:
    """The encoding called `name`; UnsupportedError names it where there is none."""
    try:
        return ENCODINGS[name]
    except KeyError:
        known = ", ".join(ENCODINGS)
        raise UnsupportedError(f"quantization {name!r} is not supported (supported: {known})") from None
