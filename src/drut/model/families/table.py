"""Maps roles to stored tensors, with the order of their rows."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Stored:
    """A tensor of the file, or a range of its rows.

    `interleaved_heads` > 0: the tensor has that many heads, whose rope pairs are adjacent rows, in the first `rotated`
    rows of a head (0: in all). If several roles share the tensor, it has `rows` rows, and the role's rows begin at
    `first`. `offset` is added to a vector's values.
    """

    name: str
    interleaved_heads: int = 0
    rotated: int = 0
    first: int = 0
    rows: int = 0
    offset: float = 0.0

    def row_order(self, rows: int) -> NDArray[np.int32] | None:
        """Returns for each of `rows` canonical rows (the members of a pair are half the rotated part apart) its stored
        row, counted from `first`; None if the order is the same."""
        if not self.interleaved_heads:
            return None
        head_dim = rows // self.interleaved_heads
        rotated = self.rotated or head_dim
        head = np.arange(head_dim, dtype=np.int32)
        head[:rotated] = head[:rotated].reshape(rotated // 2, 2).T.ravel()
        first = np.arange(self.interleaved_heads, dtype=np.int32)[:, None] * head_dim
        return np.ascontiguousarray(first + head).reshape(rows)

    def under(self, prefix: str) -> Stored:
        """Returns a copy with `prefix` before its name."""
        return replace(self, name=prefix + self.name)

    def names(self, count: int) -> tuple[str, ...]:
        """Returns the names of its tensors, for `count` experts if it holds experts."""
        return (self.name,)

    def present(self, tensors: Container[str]) -> Stored:
        """Returns itself, or the alternative form that the file has instead."""
        return self


@dataclass(frozen=True)
class StoredExperts(Stored):
    """Matrices (or biases) of experts: one tensor for all experts, with the expert as first axis, or one tensor each.

    `name` with {} is a pattern for the expert's number. If a tensor holds `parts` matrices of an expert, this is number
    `part`: a block of its rows, or every `parts`-th row if `alternating`. `transposed`: rows are inputs. `otherwise` is
    an alternative form.
    """

    part: int = 0
    parts: int = 1
    alternating: bool = False
    transposed: bool = False
    otherwise: StoredExperts | None = None

    def under(self, prefix: str) -> StoredExperts:
        otherwise = self.otherwise and self.otherwise.under(prefix)
        return replace(self, name=prefix + self.name, otherwise=otherwise)

    @property
    def each(self) -> bool:
        """Whether every expert has a tensor of its own."""
        return "{}" in self.name

    def names(self, count: int) -> tuple[str, ...]:
        return tuple(self.name.format(i) for i in range(count)) if self.each else (self.name,)

    def present(self, tensors: Container[str]) -> StoredExperts:
        if self.otherwise is None or self.names(1)[0] in tensors:
            return self
        return self.otherwise.present(tensors) if self.otherwise.names(1)[0] in tensors else self

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of each tensor, for matrices (experts, n, k) or biases (experts, n)."""
        count, n, *k = shape
        one = (n * self.parts, *k)
        one = one[::-1] if self.transposed else one
        return one if self.each else (count, *one)

    def selection(self, n: int) -> slice:
        """Returns the slice of an expert's stored rows that are this part's `n` rows."""
        return slice(self.part, None, self.parts) if self.alternating else slice(self.part * n, (self.part + 1) * n)
