"""GPTQ: codes (k, n) packed along k, zero points packed along n, and the group of each column if they were reordered.

Source: the layout that AutoGPTQ writes. Version 1 stores zero points minus one, and its decoder adds the one within the
bits of a code; version 2 stores them unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from drut.errors import UnsupportedError
from drut.formats.encoding import Encoding, planes
from drut.formats.planes import U8, join
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require
from drut.model.weights.quantized.groups import column_order, group_count, packed, unpacked
from drut.model.weights.quantized.recipe import SCALE_TYPES, Array, Parts, QuantizationRecipe

VERSIONS = {"gptq": 1, "gptq_v2": 0}  # the number added to a stored zero point


def recipes(parts: Parts, config: Mapping[str, object]) -> Iterator[QuantizationRecipe]:
    """Yields a recipe for each `X.qweight`. An error names the key or the tensor."""
    where = f"{parts.where}: quantization_config"
    bits, group = require(config, "bits", int, where), require(config, "group_size", int, where)
    version = optional(config, "checkpoint_format", str, where, "gptq")
    if bits not in (4, 8):
        raise UnsupportedError(f"{where}: GPTQ of {bits} bits is not supported (supported: 4, 8)")
    if version not in VERSIONS:
        raise UnsupportedError(f"{where}: checkpoint_format {quote(version)} is not supported "
                               f"(supported: {', '.join(VERSIONS)})")
    if config.get("dynamic"):
        raise UnsupportedError(f"{where}: dynamic (layers quantized in different ways) is not supported")
    symmetric = optional(config, "sym", bool, where, False)
    for name in dict.fromkeys(parts.names(".qweight") + parts.names(".qzeros")):
        yield _Linear(parts=parts, name=name, bits=bits, group=group, symmetric=symmetric,
                      added=VERSIONS[version]).recipe()


class _Linear:
    """One quantized layer `name`."""

    def __init__(self, parts: Parts, name: str, bits: int, group: int, symmetric: bool, added: int) -> None:
        self.parts, self.name, self.bits, self.symmetric, self.added = parts, name, bits, symmetric, added
        words, self.n = parts.matrix(f"{name}.qweight", "I32").shape
        self.k = words * 32 // bits
        self.groups = group_count(parts, f"{name}.qweight", self.k, group)
        why = f" (bits {bits}, group_size {group} in quantization_config)"
        scales = parts.expect(f"{name}.scales", (self.groups, self.n), *SCALE_TYPES, why=why)
        parts.expect(f"{name}.qzeros", (self.groups, -(-self.n * bits // 32)), "I32", why=why)
        if parts.has(f"{name}.g_idx"):
            parts.expect(f"{name}.g_idx", (self.k,), "I32")
        size = 0 if self.groups == 1 else self.k // self.groups
        self.encoding: Encoding = planes("int4" if bits == 4 else "int8", size, SCALE_TYPES[scales.encoding],
                                         zeros=not symmetric)

    def recipe(self) -> QuantizationRecipe:
        names = (f"{self.name}.{part}" for part in ("qweight", "scales", "qzeros", "g_idx"))
        return QuantizationRecipe(name=f"{self.name}.weight", shape=(self.n, self.k), encoding=self.encoding,
                                  parts=tuple(filter(self.parts.has, names)), rows=self.rows, columns=self.columns)

    def columns(self) -> NDArray[np.int32] | None:
        name = f"{self.name}.g_idx"
        return column_order(self.parts, name, self.k, self.groups) if self.parts.has(name) else None

    def rows(self) -> U8:
        codes: U8 = np.ascontiguousarray(self.parts.read(f"{self.name}.qweight").T).view(np.uint8)
        order = self.columns()
        if order is not None:
            codes = packed(unpacked(codes, self.bits)[:, order], self.bits)
        scales = self.parts.read(f"{self.name}.scales").T
        zeros = self.zeros()
        if not self.symmetric:
            return join(scales, zeros, codes)
        if zeros.any():
            self.parts.fail(f"{self.name}.qzeros", "has zero points that contradict sym in quantization_config")
        return join(scales, codes)

    def zeros(self) -> Array:
        """Returns the zero points (n, groups), int8, relative to the middle of the codes."""
        stored = unpacked(self.parts.read(f"{self.name}.qzeros"), self.bits)[:, : self.n]
        middle = 1 << self.bits - 1
        added = (stored.T.astype(np.int16) + self.added) & (2 * middle - 1)
        return (added - middle).astype(np.int8)
