"""Which stored tensor plays which role, and in what order its rows lie."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Stored:
    """A tensor of the file, or some of its rows.

    `interleaved_heads` > 0: the pairs that rope turns lie side by side in each head, in its first `turned` elements (0:
    in all). `first` and `rows`: of a tensor of so many rows that several roles share, the role's first one.
    `offset` is added to a vector's values.
    """

    name: str
    interleaved_heads: int = 0
    turned: int = 0
    first: int = 0
    rows: int = 0
    offset: float = 0.0

    def row_order(self, rows: int) -> NDArray[np.int32] | None:
        """For each of `rows` canonical rows (a pair's members half a turned part apart) the stored row, counted from
        `first`; None if the same."""
        if not self.interleaved_heads:
            return None
        head_dim = rows // self.interleaved_heads
        turned = self.turned or head_dim
        head = np.arange(head_dim, dtype=np.int32)
        head[:turned] = head[:turned].reshape(turned // 2, 2).T.ravel()
        first = np.arange(self.interleaved_heads, dtype=np.int32)[:, None] * head_dim
        return np.ascontiguousarray(first + head).reshape(rows)

    def under(self, prefix: str) -> Stored:
        """The same with `prefix` before its name."""
        return replace(self, name=prefix + self.name)

    def names(self, count: int) -> tuple[str, ...]:
        """The tensors, of `count` experts if it is of experts."""
        return (self.name,)

    def present(self, tensors: Container[str]) -> Stored:
        """This, or another form of the same that the file has instead."""
        return self


@dataclass(frozen=True)
class StoredExperts(Stored):
    """Matrices (or biases) of experts: one tensor with all of them, outermost by expert, or one for each.

    `name` with {} is a pattern: the expert's number stands there. Of a tensor that holds `parts` matrices of an expert
    this is number `part`: a block of its rows, or every `parts`-th row if `alternating`. `transposed`: rows are inputs.
    `otherwise` is how the same may be stored instead.
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
        """Of each tensor, for matrices (experts, n, k) or biases (experts, n)."""
        count, n, *k = shape
        one = (n * self.parts, *k)
        one = one[::-1] if self.transposed else one
        return one if self.each else (count, *one)

    def selection(self, n: int) -> slice:
        """Which of an expert's stored rows are this part's `n`."""
        return slice(self.part, None, self.parts) if self.alternating else slice(self.part * n, (self.part + 1) * n)
