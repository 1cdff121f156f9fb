"""Encodings: the meaning of a stored tensor's codes. Each encoding is a frozen record.

An encoding is logical: it defines how the bytes of a row along K (the reduction axis) become numbers. A packing
(`drut.kernels`) is a backend's layout of the same codes in memory. Model code sees neither.

Files have two layouts. GGUF has blocks, each with its scales, under GGUF's names. The other formats have codes, scales
and zero points in separate tensors; `drut.model.weights.quantized` combines a row of each to planes (scales, zero
points, codes), under the names that `planes` makes.
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
    """The storage of a row's elements: `block` consecutive ones in `block_bytes` bytes, or in planes.

    An element is scale * (code - zero) + minimum, or scale * table[code]; a scale (with its zero point or minimum)
    covers `group` elements, 0 for a whole row. In a super-block of 256 the groups' scales are small integers times the
    super-block's scale; in NVFP4 they are E4M3, times a float32 of the row.
    """

    name: str
    block: int  # elements of a block; a row is whole blocks
    block_bytes: int  # 0 for planes
    bits: int  # code bits of one element (a float's width for float encodings)
    group: int = 1
    offset: Literal["none", "float_min", "zero_point", "zero_points"] = "none"  # the last: one for each group
    zero_point: int = 0
    table: tuple[int, ...] = ()
    scale: Literal["none", "f16", "bf16", "f32", "e4m3"] = "none"  # the scales' type in planes
    row_scale: bool = False  # a float32 before the scales of each row

    @property
    def is_float(self) -> bool:
        """Whether elements are floats (FP8's times a scale), which take float activations."""
        return self.block == 1 or self.name.startswith("fp8")

    @property
    def scaled_by_row(self) -> bool:
        """Whether integer codes have one scale per row. Then activations are quantized in groups of 64, else of 32."""
        return not self.is_float and not self.block_bytes and self.group == 0

    @property
    def bits_per_weight(self) -> float:
        """The bits per element of long rows, scales included."""
        if self.block_bytes:
            return 8.0 * self.block_bytes / self.block
        return 8.0 * self.row_bytes(1 << 20) / (1 << 20)

    def group_of(self, k: int) -> int:
        """Returns the number of elements of a scale in a row of `k`."""
        return self.group or k

    def groups(self, k: int) -> int:
        """Returns the number of scales of a row of `k`; the last one may have fewer elements."""
        return -(-k // self.group_of(k))

    def row_bytes(self, k: int) -> int:
        """Returns the bytes of a row of `k` elements. Raises ValueError if `k` is not whole blocks."""
        if k % self.block:
            raise ValueError(f"{self.name} stores blocks of {self.block} elements; a row of {k} is not whole blocks")
        if self.block_bytes:
            return k // self.block * self.block_bytes
        extra = (1 if self.scale == "e4m3" else SCALE_BYTES[self.scale]) + (self.offset == "zero_points")
        return 4 * self.row_scale + self.groups(k) * extra + k * self.bits // 8


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
}  # the encodings with blocks
NVFP4 = Encoding("nvfp4", 32, 0, 4, 16, table=E2M1_TABLE, scale="e4m3", row_scale=True)
_PLANES = re.compile(r"(int4|int8|fp8)(z?)-(?:g([1-9][0-9]{0,5})|row)-(f16|bf16|f32)")


def planes(code: Literal["int4", "int8", "fp8"], group: int, scale: ScaleType, *, zeros: bool = False) -> Encoding:
    """Returns an encoding with codes of 4 or 8 bits, or E4M3, and a scale for `group` elements (0: a row).

    With `zeros` each scale has a zero point, int8, relative to the middle of the codes' range; else the zero point is
    that middle. Raises UnsupportedError for a group that is not a multiple of 32.
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


W8A8 = planes("int8", 0, "f32")


def find_encoding(name: str) -> Encoding | None:
    """Returns the encoding called `name`; None if Drut does not compute with it."""
    if name == "W8A8":
        return W8A8
    if name in ENCODINGS or name == NVFP4.name:
        return ENCODINGS.get(name, NVFP4)
    match = _PLANES.fullmatch(name)
    if match is None or int(match[3] or 0) % 32 or (match[2] and match[1] == "fp8"):
        return None
    return planes(match[1], int(match[3] or 0), match[4], zeros=bool(match[2]))  # type: ignore[arg-type]


def encoding(name: str) -> Encoding:
    """Does what `find_encoding` does, but raises UnsupportedError, which names the encoding, instead of returning
    None."""
    found = find_encoding(name)
    if found is None:
        known = ", ".join(ENCODINGS)
        raise UnsupportedError(f"quantization {name!r} is not supported (supported: {known})")
    return found


def title(name: str) -> str:
    """Returns the name of an encoding in tables: W8A8 for int8 codes with one scale per row, else its own."""
    return "W8A8" if name.startswith("int8-row-") else name
