"""Costs: the shape of a step, and the bytes and multiply-adds of operations by that shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from drut.formats.encoding import Encoding
from drut.kernels.weight import Matrix, Stack
from drut.observe.ledger import Macs


class CostTerm(Protocol):
    """The rows of one sequence in a step: `rows` from position `start` on."""

    @property
    def start(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def samples(self) -> int: ...


class StepShape(NamedTuple):
    """The properties of a step that its cost depends on."""

    rows: int
    samples: int
    kv_tokens: int  # sum over sequences of the positions that their rows read
    row_tokens: int  # sum over rows of the positions that each attends to
    sequences: tuple[tuple[int, int], ...] = ()  # rows and length of each; if empty, windows are ignored
    used_experts: tuple[int, ...] = ()  # by layer, as measured; if empty, as expected for random routing

    @classmethod
    def of(cls, pieces: Iterable[CostTerm], later: int = 0) -> StepShape:
        """Returns the shape of a step with `pieces`, or of step number `later` of its burst, with one row per
        sequence."""
        sequences, samples = [], 0
        for piece in pieces:
            sequences.append((1 if later else piece.rows, piece.start + piece.rows + later))
            samples += piece.samples
        return cls.over(sequences, samples)

    @classmethod
    def over(cls, sequences: Sequence[tuple[int, int]], samples: int) -> StepShape:
        """Returns the shape of a step over sequences, each a pair of its number of rows and its length."""
        rows = kv_tokens = row_tokens = 0
        for count, length in sequences:
            rows += count
            kv_tokens += length
            row_tokens += count * length - count * (count - 1) // 2  # `seen` without a window, spelled out for speed
        return cls(rows, samples, kv_tokens, row_tokens, tuple(sequences))

    def seen(self, window: int) -> tuple[int, int]:
        """Returns `kv_tokens` and `row_tokens` of layers with a sliding window of `window` positions; 0 for full
        attention."""
        if not window or not self.sequences:
            return self.kv_tokens, self.row_tokens
        kv_tokens = row_tokens = 0
        for rows, length in self.sequences:
            read, pairs = seen(rows, length, window)
            kv_tokens += read
            row_tokens += pairs
        return kv_tokens, row_tokens


def seen(rows: int, length: int, window: int) -> tuple[int, int]:
    """Returns for the last `rows` of a sequence the positions that they read, and the sum of the positions that each
    attends to; `window` 0: all."""
    if not window:
        return length, rows * length - rows * (rows - 1) // 2
    full = max(0, min(rows, length - window))  # rows that attend to a whole window; the others to their prefix
    return (min(length, window + rows - 1),
            full * window + (rows - full) * (2 * (length - full) - (rows - full) + 1) // 2)


class Cost(NamedTuple):
    """Bytes moved to and from memory, without activations that stay in the CPU cache, and multiply-adds."""

    bytes: int
    macs: Macs = Macs()

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(self.bytes + other.bytes, self.macs + other.macs)

    def __mul__(self, times: int) -> Cost:  # type: ignore[override]
        return Cost(self.bytes * times, self.macs * times)


FREE = Cost(0)


@dataclass(frozen=True)
class Experts:
    """The experts of an operation. Equal for all layers: only measured numbers of used experts differ."""

    count: int
    top_k: int
    layer: int = field(compare=False)

    def used(self, s: StepShape) -> int:
        """Returns the number of experts with rows."""
        return s.used_experts[self.layer] if s.used_experts else self.expected(s.rows)

    def expected(self, rows: int) -> int:
        """Returns the expected number of experts with rows for random routing of `rows`."""
        return round(self.count * (1 - (1 - self.top_k / self.count) ** rows))


@dataclass(frozen=True, kw_only=True)
class CostRate:
    """The cost of an operation per unit of a step. Operations of equal rates cost the same in every step."""

    once: Cost = FREE
    row: Cost = FREE
    sample: Cost = FREE
    kv_token: Cost = FREE  # per position in `kv_tokens`, within `window`
    row_token: Cost = FREE
    window: int = 0
    expert: Cost = FREE  # per expert with rows
    experts: Experts | None = None

    @property
    def reads(self) -> bool:
        """True if the cost grows with the context."""
        return self.kv_token != FREE or self.row_token != FREE

    def cost(self, s: StepShape) -> Cost:
        total = self.once + self.row * s.rows + self.sample * s.samples
        if self.reads:
            kv_tokens, row_tokens = s.seen(self.window)
            total += self.kv_token * kv_tokens + self.row_token * row_tokens
        if self.experts is not None:
            total += self.expert * self.experts.used(s)
        return total


NOTHING = CostRate()


def matmul(*weights: Matrix, row_bytes: int = 0) -> CostRate:
    """Returns the rate of multiplying each row by each of `weights`, which are read once; `row_bytes`: other bytes per
    row."""
    return CostRate(once=Cost(sum(w.nbytes for w in weights)), row=_products(1, *weights) + Cost(row_bytes))


def grouped(experts: Experts, *stacks: Stack) -> CostRate:
    """Returns the rate of multiplying each row by the matrices of its `top_k` experts; each used expert is read
    once."""
    return CostRate(row=_products(experts.top_k, *stacks), expert=Cost(sum(s.nbytes // s.count for s in stacks)),
                    experts=experts)


def _macs(enc: Encoding, count: int) -> Macs:
    """Returns `count` multiply-adds of weights of an encoding. Entries of a table are wider than its codes."""
    if enc.is_float:
        return Macs(floats=count)
    return Macs(int8=count) if enc.bits > 4 or enc.table else Macs(int4=count)


def _products(times: int, *weights: Matrix | Stack) -> Cost:
    """Returns the cost of multiplying one row by each of `weights`, `times` times."""
    return sum((Cost(0, _macs(w.encoding, times * w.n * w.k)) for w in weights), FREE)
