"""Which stored tensor plays which role, and in what order its rows lie."""

from __future__ import annotations

from dataclasses import dataclass

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
