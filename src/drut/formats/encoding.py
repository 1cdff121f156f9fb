"""What the codes of a stored tensor mean. One frozen record an encoding.

An encoding is logical: how the bytes of a row along K (the reduction axis) become numbers. How a backend lays the
same codes out in memory is a packing (`drut.kernels`), and model code sees neither.

Files have them in two layouts. GGUF's are blocks, each with its scales, under GGUF's names. The other formats keep
codes, scales and zero points in tensors of their own; `drut.model.weights.quantized` brings a row of each together as
planes (scales, zero points, codes), under the names that `planes` makes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from drut.errors import UnsupportedError

ScaleType = Literal["f16", "bf16", "f32"]
SCALE_BYTES: dict[str, int] = {"f16": 2, "bf16": 2, "f32": 4}


@dataclass(frozen=True)
class Encoding:
    """How the elements of a row are stored: `block` consecutive ones in `block_bytes` bytes, or in planes.

    An element is scale * (code - zero) + minimum, or scale * table[code]; a scale (and what belongs to it) serves
    `group` elements, 0 standing for a whole row. In a super-block of 256 the groups' scales are small integers times a
    scale of its own; in NVFP4 they are E4M3, times a float32 of the row.
    """

    name: str
    block: int  # a row is whole blocks
    block_bytes: int  # 0 for planes
    bits: int  # code bits of one element (a float's width for float encodings)
    group: int = 1
    offset: Literal["none", "float_min", "zero_point", "zero_points"] = "none"  # the last: one for each group
    zero_point: int = 0
    table: tuple[int, ...] = ()
    scale: Literal["none", "f16", "bf16", "f32", "e4m3"] = "none"  # of planes
    row_scale: bool = False  # a float32 before the scales of each row

    @property
    def is_float(self) -> bool:
        """Whether elements are floats (FP8's times a scale), which take float activations."""
        return self.block == 1 or self.name.startswith("fp8")

    @property
    def bits_per_weight(self) -> float:
        """Of long rows."""
        if self.block_bytes:
            return 8.0 * self.block_bytes / self.block
        return 8.0 * self.row_bytes(1 << 20) / (1 << 20)

    def group_of(self, k: int) -> int:
        """Elements that one scale serves in a row of `k`."""
        return self.group or k

    def groups(self, k: int) -> int:
        """Scales of a row of `k`; the last may serve fewer elements."""
        return -(-k // self.group_of(k))

    def row_bytes(self, k: int) -> int:
        """Bytes of one row of `k` elements. Raises ValueError where `k` is not whole blocks."""
        if k % self.block:
            raise ValueError(f"{self.name} stores blocks of {self.block} elements; a row of {k} is not whole blocks")
        if self.block_bytes:
            return k // self.block * self.block_bytes
        beside = (1 if self.scale == "e4m3" else SCALE_BYTES[self.scale]) + (self.offset == "zero_points")
        return 4 * self.row_scale + self.groups(k) * beside + k * self.bits // 8


IQ4_NL_TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1_TABLE = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the values; scales are halved

ENCODINGS: dict[str, Encoding] = {
    e.name: e
    for e in (
        Encoding("F32", 1, 4, 32),
        Encoding("F16", 1, 2, 16),
        Encoding("BF16", 1, 2, 16),
        Encoding(name="Q4_0", block=32, block_bytes=18, bits=4, group=32, offset="zero_point", zero_point=8),
        Encoding(name="Q4_1", block=32, block_bytes=20, bits=4, group=32, offset="float_min"),
        Encoding(name="Q5_0", block=32, block_bytes=22, bits=5, group=32, offset="zero_point", zero_point=16),
        Encoding(name="Q5_1", block=32, block_bytes=24, bits=5, group=32, offset="float_min"),
        Encoding("Q8_0", 32, 34, 8, 32),
        Encoding(name="Q2_K", block=256, block_bytes=84, bits=2, group=16, offset="float_min"),
        Encoding(name="Q3_K", block=256, block_bytes=110, bits=3, group=16, offset="zero_point", zero_point=4),
        Encoding(name="Q4_K", block=256, block_bytes=144, bits=4, group=32, offset="float_min"),
        Encoding(name="Q5_K", block=256, block_bytes=176, bits=5, group=32, offset="float_min"),
        Encoding(name="Q6_K", block=256, block_bytes=210, bits=6, group=16, offset="zero_point", zero_point=32),
        Encoding("IQ4_NL", 32, 18, 4, 32, table=IQ4_NL_TABLE),
        Encoding("IQ4_XS", 256, 136, 4, 32, table=IQ4_NL_TABLE),
        Encoding("MXFP4", 32, 17, 4, 32, table=E2M1_TABLE),
        Encoding(name="TQ1_0", block=256, block_bytes=54, bits=2, group=256, offset="zero_point", zero_point=1),
        Encoding(name="TQ2_0", block=256, block_bytes=66, bits=2, group=256, offset="zero_point", zero_point=1),
    )
}  # those of blocks
NVFP4 = Encoding("nvfp4", 32, 0, 4, 16, table=E2M1_TABLE, scale="e4m3", row_scale=True)
_PLANES = re.compile(r"(int4|int8|fp8)(z?)-(?:g([1-9][0-9]{0,5})|row)-(f16|bf16|f32)")


def planes(code: Literal["int4", "int8", "fp8"], group: int, scale: ScaleType, *, zeros: bool = False) -> Encoding:
    """Codes of 4 or 8 bits, or E4M3, with a scale for `group` elements (0: a row), each with a zero point or none.

    The zero point of codes without one is the middle of their range; those of `zeros` are counted from there, int8.
    UnsupportedError for a group that is not a multiple of 32.
    """
    if group % 32:
        raise UnsupportedError(f"quantization in groups of {group} is not supported (supported: multiples of 32)")
    name = f"{code}{'z' * zeros}-{f'g{group}' if group else 'row'}-{scale}"
    if code == "fp8":
        return Encoding(name, 32, 0, 8, group, scale=scale)
    bits = 4 if code == "int4" else 8
    return Encoding(name=name, block=32, block_bytes=0, bits=bits, group=group,
                    offset="zero_points" if zeros else "zero_point" if bits == 4 else "none",
                    zero_point=8 if bits == 4 else 0, scale=scale)


def find_encoding(name: str) -> Encoding | None:
    """The encoding called `name`, if it is one that Drut computes with."""
    if name in ENCODINGS or name == NVFP4.name:
        return ENCODINGS.get(name, NVFP4)
    match = _PLANES.fullmatch(name)
    if match is None or int(match[3] or 0) % 32 or (match[2] and match[1] == "fp8"):
        return None
    return planes(match[1], int(match[3] or 0), match[4], zeros=bool(match[2]))  # type: ignore[arg-type]


def encoding(name: str) -> Encoding:
    """As `find_encoding`; UnsupportedError names it where there is none."""
    found = find_encoding(name)
    if found is None:
        known = ", ".join(ENCODINGS)
        raise UnsupportedError(f"quantization {name!r} is not supported (supported: {known})")
    return found
