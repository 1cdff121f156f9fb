"""Which stored tensor plays which role, and in what order its rows lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Stored:
    """A tensor of the file. `interleaved_heads` > 0: the pairs that rope turns lie side by side in each head."""

    name: str
    interleaved_heads: int = 0

    def row_order(self, rows: int) -> NDArray[np.int32] | None:
        """For each of `rows` canonical rows (a pair's members half a head apart) the stored row; None if the same."""
        if not self.interleaved_heads:
            return None
        head_dim = rows // self.interleaved_heads
        stored = np.arange(rows, dtype=np.int32).reshape(self.interleaved_heads, head_dim // 2, 2)
        return np.ascontiguousarray(stored.swapaxes(1, 2)).reshape(rows)
