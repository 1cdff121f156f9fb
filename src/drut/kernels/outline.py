"""Weights known by their form alone: all that a plan's operations and their costs depend on."""

from __future__ import annotations

from dataclasses import dataclass

from drut.formats.encoding import Encoding


@dataclass(frozen=True, kw_only=True)
class MatrixOutline:
    """A matrix, or a stack of `count`, of which nothing was read; `nbytes` when packed.

    The order of its columns is in the file's tensors, so here it has none.
    """

    n: int
    k: int
    encoding: Encoding
    nbytes: int
    count: int = 1
    columns: None = None


@dataclass(frozen=True)
class VectorOutline:
    size: int
