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


class Packed(Protocol):
    """`n` outputs by `k` inputs, packed. Outputs are read as dots over `k`."""

    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def encoding(self) -> Encoding: ...
    @property
    def nbytes(self) -> int: ...


class Matrix(Packed, Protocol):
    """One of them; `columns` says which input each column multiplies, where that is not its own place."""

    @property
    def columns(self) -> NDArray[np.int32] | None: ...


class Stack(Packed, Protocol):
    """`count` of them, all in one encoding: one for each expert."""

    @property
    def count(self) -> int: ...


class Vector(Protocol):
    """Floats, padded with zeros."""

    @property
    def size(self) -> int: ...
