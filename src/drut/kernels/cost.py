"""What a step is to the cost of its operations, and what they cost."""

from __future__ import annotations

from typing import NamedTuple

from drut.kernels.weight import Matrix, Stack


class StepShape(NamedTuple):
    """What of a step its cost depends on."""

    rows: int
    samples: int
    kv_tokens: int  # sum over sequences of the length their rows read
    row_tokens: int  # sum over rows of the length each sees
    sequences: tuple[tuple[int, int], ...] = ()  # rows and length of each; without them windows hide nothing
    used_experts: tuple[int, ...] = ()  # by layer, as measured; without them, what rows that choose at random would use

    def seen(self, window: int) -> tuple[int, int]:
        """`kv_tokens` and `row_tokens` of layers whose rows see `window` positions; 0 for all."""
        if not window or not self.sequences:
            return self.kv_tokens, self.row_tokens
        kv_tokens = row_tokens = 0
        for rows, length in self.sequences:
            kv_tokens += min(length, window + rows - 1)
            full = max(0, min(rows, length - window))  # rows that see a whole window; the others see their prefix
            row_tokens += full * window + (rows - full) * (2 * (length - full) - (rows - full) + 1) // 2
        return kv_tokens, row_tokens

    def used(self, layer: int, experts: int, top_k: int) -> int:
        """How many of a layer's experts have rows."""
        if self.used_experts:
            return self.used_experts[layer]
        return round(experts * (1 - (1 - top_k / experts) ** self.rows))


class Cost(NamedTuple):
    """Bytes read from and written to memory beside the cache-resident activations, and multiply-adds.

    `float_macs` of the `macs` are of floats, the others of 8-bit integers.
    """

    bytes: int
    macs: int
    float_macs: int = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(self.bytes + other.bytes, self.macs + other.macs, self.float_macs + other.float_macs)


def matmul(rows: int, *weights: Matrix) -> Cost:
    """Of `rows` times each of them, which is read once."""
    macs = [rows * w.n * w.k for w in weights]
    floats = sum(m for w, m in zip(weights, macs, strict=True) if w.encoding.is_float)
    return Cost(sum(w.nbytes for w in weights), sum(macs), floats)


def grouped(s: StepShape, layer: int, experts: int, top_k: int, *stacks: Stack) -> Cost:
    """Of each row times the matrices of its `top_k` experts; those that are used are read once."""
    used, pairs = s.used(layer, experts, top_k), s.rows * top_k
    macs = [pairs * w.n * w.k for w in stacks]
    floats = sum(m for w, m in zip(stacks, macs, strict=True) if w.encoding.is_float)
    return Cost(sum(used * (w.nbytes // w.count) for w in stacks), sum(macs), floats)
