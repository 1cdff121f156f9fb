"""Codes of 4 and 8 bits in groups, for GPTQ, AWQ and compressed-tensors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drut.formats.planes import U8, pairs
from drut.model.weights.quantized.recipe import Array, Parts


def unpacked(words: Array, bits: int) -> U8:
    """Returns int32 words (rows, n) as codes (rows, n * 32 / bits), the lowest bits first."""
    bytes_ = np.ascontiguousarray(words).view(np.uint8)
    return pairs(bytes_) if bits == 4 else bytes_


def packed(codes: U8, bits: int) -> U8:
    """Returns codes (rows, k) as bytes, the lower bits first."""
    return np.asarray(codes[:, ::2] | codes[:, 1::2] << 4, np.uint8) if bits == 4 else codes


def group_count(parts: Parts, name: str, k: int, group: int) -> int:
    """Returns the number of groups of a row of `k`; a `group` of -1 is the whole row."""
    if group in (-1, k):
        return 1
    if group < 1 or k % group:
        parts.fail(name, f"has rows of {k}, not whole groups of group_size {group}")
    return k // group


def column_order(parts: Parts, name: str, k: int, groups: int) -> NDArray[np.int32] | None:
    """Returns the columns sorted by their group, which tensor `name` has for each; None if they are sorted already."""
    index = parts.read(name)
    order = np.argsort(index, kind="stable").astype(np.int32)
    if not np.array_equal(index[order], np.arange(k) // (k // groups)):
        parts.fail(name, f"does not have {k // groups} columns for each of {groups} groups")
    return None if np.array_equal(order, np.arange(k)) else order
