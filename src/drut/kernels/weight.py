"""The interfaces of packed weights: matrix, stack of matrices, vector."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import Encoding

PAD = 32  # K and N are padded to this many elements; padding is zero and changes no sum
MAX_SLICES, LEAST_GROUPS = 8, 8


def padded(n: int) -> int:
    """Returns `n` rounded up to whole panels and activation groups."""
    return -(-n // PAD) * PAD


def slices_of(k: int) -> int:
    """Returns the slices in which a row-parallel matrix sums its `k` inputs: the largest power of two up to MAX_SLICES
    that leaves each slice LEAST_GROUPS groups of activations or more, else 1."""
    fit = padded(k) // PAD // LEAST_GROUPS
    return max(1, min(MAX_SLICES, 1 << fit.bit_length() - 1)) if fit else 1


class Packed(Protocol):
    """Packed weights of `n` outputs and `k` inputs. Each output is a dot product over `k`."""

    @property
    def n(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def encoding(self) -> Encoding: ...
    @property
    def nbytes(self) -> int: ...


class Matrix(Packed, Protocol):
    """One packed matrix. `columns[i]` is the input that column i multiplies; None for the natural order."""

    @property
    def columns(self) -> NDArray[np.int32] | None: ...


class Stack(Packed, Protocol):
    """`count` packed matrices of one encoding, one for each expert."""

    @property
    def count(self) -> int: ...


class Vector(Protocol):
    """A vector of floats, padded with zeros."""

    @property
    def size(self) -> int: ...
