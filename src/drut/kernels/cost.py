"""What a step is to the cost of its operations, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from drut.kernels.weight import Matrix, Stack


class Piece(Protocol):
    """What a step computes of one sequence: `rows` from position `start` on."""

    @property
    def start(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def samples(self) -> int: ...


class StepShape(NamedTuple):
    """What of a step its cost depends on."""

    rows: int
    samples: int
    kv_tokens: int  # sum over sequences of the length their rows read
    row_tokens: int  # sum over rows of the length each sees
    sequences: tuple[tuple[int, int], ...] = ()  # rows and length of each; without them windows hide nothing
    used_experts: tuple[int, ...] = ()  # by layer, as measured; without them, what rows that choose at random would use

    @classmethod
    def of(cls, pieces: Iterable[Piece], later: int = 0) -> StepShape:
        """Of the step that computes `pieces`, or of the one `later` steps on in a burst of it, a row a sequence."""
        sequences, samples = [], 0
        for piece in pieces:
            sequences.append((1 if later else piece.rows, piece.start + piece.rows + later))
            samples += piece.samples
        return cls.over(sequences, samples)

    @classmethod
    def over(cls, sequences: Sequence[tuple[int, int]], samples: int) -> StepShape:
        """Of sequences with so many last rows and so long."""
        rows = kv_tokens = row_tokens = 0
        for count, length in sequences:
            rows += count
            kv_tokens += length
            row_tokens += count * length - count * (count - 1) // 2  # `seen` without a window, spelled out for speed
        return cls(rows, samples, kv_tokens, row_tokens, tuple(sequences))

    def seen(self, window: int) -> tuple[int, int]:
        """`kv_tokens` and `row_tokens` of layers whose rows see `window` positions; 0 for all."""
        if not window or not self.sequences:
            return self.kv_tokens, self.row_tokens
        kv_tokens = row_tokens = 0
        for rows, length in self.sequences:
            read, pairs = seen(rows, length, window)
            kv_tokens += read
            row_tokens += pairs
        return kv_tokens, row_tokens


def seen(rows: int, length: int, window: int) -> tuple[int, int]:
    """Positions that the last `rows` of a sequence read, and those that each sees, summed; `window` 0: all."""
    if not window:
        return length, rows * length - rows * (rows - 1) // 2
    full = max(0, min(rows, length - window))  # rows that see a whole window; the others see their prefix
    return (min(length, window + rows - 1),
            full * window + (rows - full) * (2 * (length - full) - (rows - full) + 1) // 2)


class Cost(NamedTuple):
    """Bytes read from and written to memory beside the cache-resident activations, and multiply-adds.

    `float_macs` of the `macs` are of floats, the others of 8-bit integers.
    """

    bytes: int
    macs: int = 0
    float_macs: int = 0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(self.bytes + other.bytes, self.macs + other.macs, self.float_macs + other.float_macs)

    def __mul__(self, times: int) -> Cost:  # type: ignore[override]
        return Cost(self.bytes * times, self.macs * times, self.float_macs * times)


FREE = Cost(0)


@dataclass(frozen=True)
class Experts:
    """The experts an operation has. Those of two layers are equal: how many have rows differs only where measured."""

    count: int
    top_k: int
    layer: int = field(compare=False)

    def used(self, s: StepShape) -> int:
        """How many of them have rows."""
        return s.used_experts[self.layer] if s.used_experts else self.expected(s.rows)

    def expected(self, rows: int) -> int:
        """How many have some of `rows` that choose at random."""
        return round(self.count * (1 - (1 - self.top_k / self.count) ** rows))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """What an operation costs, by what a step holds. Operations of equal rates cost the same in every step."""

    once: Cost = FREE
    row: Cost = FREE
    sample: Cost = FREE
    kv_token: Cost = FREE  # each of `kv_tokens`, of rows that see `window` positions
    row_token: Cost = FREE
    window: int = 0
    expert: Cost = FREE  # each that has rows
    experts: Experts | None = None

    @property
    def reads(self) -> bool:
        """Whether it costs more the longer the context is."""
        return self.kv_token != FREE or self.row_token != FREE

    def cost(self, s: StepShape) -> Cost:
        total = self.once + self.row * s.rows + self.sample * s.samples
        if self.reads:
            kv_tokens, row_tokens = s.seen(self.window)
            total += self.kv_token * kv_tokens + self.row_token * row_tokens
        if self.experts is not None:
            total += self.expert * self.experts.used(s)
        return total


NOTHING = Rate()


def matmul(*weights: Matrix, row_bytes: int = 0) -> Rate:
    """Of each row times each of `weights`, which is read once; `row_bytes` more are moved for a row."""
    return Rate(once=Cost(sum(w.nbytes for w in weights)), row=_products(1, *weights) + Cost(row_bytes))


def grouped(experts: Experts, *stacks: Stack) -> Rate:
    """Of each row times the matrices of its `top_k` experts; those that are used are read once."""
    return Rate(row=_products(experts.top_k, *stacks), expert=Cost(sum(s.nbytes // s.count for s in stacks)),
                experts=experts)


def _products(times: int, *weights: Matrix | Stack) -> Cost:
    """Of one row with each of `weights`, so many times."""
    macs = [times * w.n * w.k for w in weights]
    return Cost(0, sum(macs), sum(m for w, m in zip(weights, macs, strict=True) if w.encoding.is_float))
