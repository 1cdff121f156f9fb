"""What a backend does for the layers above: keep weights, give room, run plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import Encoding
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.fusion import Rule
from drut.kernels.kv import Layout
from drut.kernels.ops import F32
from drut.kernels.output import StepOutput
from drut.kernels.pending import Pending
from drut.kernels.plan import Plan
from drut.kernels.pool import Pool
from drut.kernels.weight import Matrix, Stack, Vector


class Limits(NamedTuple):
    """The largest step an executable must take."""

    rows: int
    samples: int
    relay_slots: int


Host = Callable[[str], None]  # called at each stop of a plan with the stop's name


class Executable(ABC):
    """A plan made ready to run over the pages of each KV group. Steps run in the order of their launch."""

    @abstractmethod
    def launch(self, step: StepDescriptor, host: Host | None = None) -> Pending:
        """Starts every segment, and calls `host` between them. Until it is done the descriptor stays as it is.

        A backend may also run the step before it returns.
        """

    def run(self, step: StepDescriptor, host: Host | None = None) -> StepOutput:
        """Launches the step and waits for it."""
        return self.launch(step, host).result()

    def burst(self, steps: int, ends: Sequence[Sequence[int]]) -> Burst:
        """What `run_burst` fills: at most so many steps, and each sequence's ids that end it."""
        return Burst(steps, ends)

    def run_burst(self, step: StepDescriptor, burst: Burst) -> None:
        """Runs `step`, whose rows are sequences that decode, and the steps after it. It writes over `step`."""
        while True:
            out = self.run(step)
            over = burst.last(out)
            burst.put(out, over=over)
            if over:
                return
            step.advance()

    @abstractmethod
    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        """Draws these samples of the last step again, from its logits, by what `step` says of them now.

        The outputs of that step, and what the sequences go on with, then have the new tokens.
        """

    @abstractmethod
    def logits(self, count: int) -> F32:
        """Raw logits of the last step's first `count` samples, (count, vocab), from BEFORE_SAMPLE on.

        They are the executable's own: the next run overwrites them.
        """

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        """By layer, how many rows each of its experts got since the start."""
        return {}

    def used_experts(self) -> tuple[int, ...]:
        """By layer, how many experts had rows in the last step; 0 for a layer without experts."""
        return ()


class Backend(ABC):
    """One way to compute: where weights live and who runs the operations."""

    name: str
    fusions: Sequence[Rule] = ()  # whose results `load` takes

    @abstractmethod
    def describe(self) -> str:
        """One phrase for people: backend, instruction set, threads."""

    @abstractmethod
    def matrix(self, enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, *, rows: NDArray[np.int32] | None = None,
               bias: F32 | None = None, columns: NDArray[np.int32] | None = None) -> Matrix:
        """Packs `n` rows of `k` elements stored in `raw`; `rows[i]` says which stored row becomes row i.

        Column i multiplies element `columns[i]` of a row of activations; all matrices of one operation have the same
        columns. ModelFileError where a scale of the weights is not finite.
        """

    @abstractmethod
    def stack(self, enc: Encoding, raws: Iterable[NDArray[np.uint8]], count: int, n: int, k: int, *,
              bias: F32 | None = None) -> Stack:
        """Packs `count` matrices of `n` rows, taken from `raws` one after another; `bias` (count, n)."""

    @abstractmethod
    def packed_bytes(self, enc: Encoding, n: int, k: int) -> int:
        """`nbytes` of a matrix of this form, and of each in a stack."""

    @abstractmethod
    def vector(self, values: F32) -> Vector:
        """Keeps float32 `values`, padded with zeros."""

    @abstractmethod
    def pool(self, layout: Layout, pages: int) -> Pool:
        """Room for `pages` units, touched on first use."""

    @abstractmethod
    def load(self, plan: Plan, pools: Sequence[Pool], limits: Limits, beside: Executable | None = None) -> Executable:
        """Makes `plan` ready over a pool a KV group; buffers hold `limits.rows` rows.

        Several plans may share the pools. `beside`: an executable of this backend whose steps and this one's run in
        turns. They share the relay, and as far as sizes allow what lives for one step, logits too.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends threads and frees memory the backend owns."""


class PackingBackend(Backend):
    """A backend whose packed matrices are plain bytes, which may be kept in a file and taken up again."""

    @abstractmethod
    def packing(self, encodings: Iterable[Encoding]) -> str:
        """An id that differs where matrices of these encodings are packed in another way."""

    @abstractmethod
    def packed(self, matrix: Matrix | Stack) -> NDArray[np.uint8]:
        """The bytes of a matrix or a stack of this backend, shape (nbytes,)."""

    @abstractmethod
    def adopt(self, enc: Encoding, data: NDArray[np.uint8], n: int, k: int, *, bias: F32 | None = None,
              columns: NDArray[np.int32] | None = None) -> Matrix:
        """A matrix of bytes that were packed before; they must stay as they are."""

    @abstractmethod
    def adopt_stack(self, enc: Encoding, data: NDArray[np.uint8], count: int, n: int, k: int, *,
                    bias: F32 | None = None) -> Stack:
        """The same of a stack, whose matrices lie one after another."""
