"""Outlines of weights: shape, encoding and packed bytes, without data. Enough to record a plan and compute its
costs."""

from __future__ import annotations

from dataclasses import dataclass

from drut.formats.encoding import Encoding


@dataclass(frozen=True, kw_only=True)
class MatrixOutline:
    """A matrix, or a stack of `count` matrices, whose data was not read; `nbytes` when packed.

    It has no column order, because that is stored in tensors.
    """

    n: int
    k: int
    encoding: Encoding
    nbytes: int
    count: int = 1
    columns: None = None


@dataclass(frozen=True)
class VectorOutline:
    """A vector whose data was not read."""

    size: int
