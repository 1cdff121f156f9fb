"""AWQ, `gemm` layout: codes (k, n) and zero points packed along n, in AWQ's own order.

Source: the layout that AutoAWQ writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from drut.errors import UnsupportedError
from drut.formats.encoding import planes
from drut.formats.planes import U8, join
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require
from drut.model.weights.quantized.groups import group_count
from drut.model.weights.quantized.recipe import SCALE_TYPES, Array, Parts, QuantizationRecipe

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column, of eight, of the i-th lowest four bits of a word


def recipes(parts: Parts, config: Mapping[str, object]) -> Iterator[QuantizationRecipe]:
    """Yields a recipe for each `X.qweight`. An error names the key or the tensor."""
    where = f"{parts.where}: quantization_config"
    bits = require(config, "w_bit" if config.get("bits") is None else "bits", int, where)
    key = "q_group_size" if config.get("group_size") is None else "group_size"
    group, version = require(config, key, int, where), optional(config, "version", str, where, "gemm").lower()
    if bits != 4:
        raise UnsupportedError(f"{where}: AWQ of {bits} bits is not supported (supported: 4)")
    if version != "gemm":
        raise UnsupportedError(f"{where}: AWQ version {quote(version)} is not supported (supported: gemm)")
    if not optional(config, "zero_point", bool, where, True):
        raise UnsupportedError(f"{where}: AWQ without zero_point is not supported")
    for name in dict.fromkeys(parts.names(".qweight") + parts.names(".qzeros")):
        yield _recipe(parts, name, group)


def _recipe(parts: Parts, name: str, group: int) -> QuantizationRecipe:
    k, words = parts.matrix(f"{name}.qweight", "I32").shape
    groups, n = group_count(parts, f"{name}.qweight", k, group), 8 * words
    why = f" (group_size {group} in quantization_config)"
    scales = parts.expect(f"{name}.scales", (groups, n), *SCALE_TYPES, why=why)
    parts.expect(f"{name}.qzeros", (groups, words), "I32", why=why)
    enc = planes("int4", 0 if groups == 1 else k // groups, SCALE_TYPES[scales.encoding], zeros=True)
    stored = tuple(f"{name}.{part}" for part in ("qweight", "scales", "qzeros"))
    return QuantizationRecipe(f"{name}.weight", (n, k), enc, stored, _rows(parts, *stored))


def _rows(parts: Parts, qweight: str, scales: str, qzeros: str) -> Callable[[], U8]:
    def rows() -> U8:
        zeros = transposed(parts.read(qzeros)).view(np.int8) - np.int8(8)
        return join(parts.read(scales).T, zeros, paired(parts.read(qweight)))

    return rows


def transposed(words: Array) -> U8:
    """Returns words (k, n/8) as codes (n, k), a byte each."""
    k, count = words.shape
    out = np.empty((count, 8, k), np.uint8)
    for i, column in enumerate(ORDER):
        out[:, column] = (words.view(np.uint32) >> (4 * i) & 15).astype(np.uint8).T
    return out.reshape(8 * count, k)


def paired(words: Array) -> U8:
    """Returns words (k, n/8) as codes (n, k/2), two in a byte, the lower first. k is even."""
    k, count = words.shape
    even, odd = words.view(np.uint32)[::2], words.view(np.uint32)[1::2]
    out = np.empty((count, 8, k // 2), np.uint8)
    for i, column in enumerate(ORDER):
        out[:, column] = ((even >> (4 * i) & 15) | (odd >> (4 * i) & 15) << 4).astype(np.uint8).T
    return out.reshape(8 * count, k // 2)
