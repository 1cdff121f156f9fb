"""Weights as a backend keeps them: a matrix in its packing, a vector of floats."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import Encoding

PAD = 32  # K and N are padded to this many elements; padding is zero and changes no sum


def padded(n: int) -> int:
    """`n` rounded up to whole panels and activation groups."""
    return -(-n // PAD) * PAD


class Matrix(Protocol):
    """`n` outputs by `k` inputs, packed. Outputs are read as dots over `k`."""

    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def encoding(self) -> Encoding: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def columns(self) -> NDArray[np.int32] | None: ...


class Stack(Protocol):
    """`count` matrices of `n` outputs by `k` inputs, all in one encoding: one for each expert."""

    @property
    def count(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def encoding(self) -> Encoding: ...
    @property
    def nbytes(self) -> int: ...


class Vector(Protocol):
    """Floats, padded with zeros."""

    @property
    def size(self) -> int: ...
