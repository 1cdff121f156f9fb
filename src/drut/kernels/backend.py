"""The interface of a backend: it packs weights, allocates page pools and runs plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.errors import UnsupportedError
from drut.formats.encoding import Encoding
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.fusion import Rule
from drut.kernels.kv import CacheLayout
from drut.kernels.ops import F32, Buffer
from drut.kernels.output import StepOutput
from drut.kernels.pending import Pending
from drut.kernels.plan import Plan
from drut.kernels.pool import Pool
from drut.kernels.weight import Matrix, Stack, Vector


class BackendLimits(NamedTuple):
    """Holds the maximum size of the steps of an executable."""

    rows: int
    samples: int
    relay_slots: int


Host = Callable[[str], None]  # called at each stop of a plan with the stop's name


class Executable(ABC):
    """A plan that is ready to run over the pages of each KV group. Steps run in the order of their launch."""

    @abstractmethod
    def launch(self, step: StepDescriptor, host: Host | None = None) -> Pending:
        """Starts a step and calls `host` between its segments. `step` must not be changed before the step is done.

        A backend may also run the whole step before it returns.
        """

    def run(self, step: StepDescriptor, host: Host | None = None) -> StepOutput:
        """Launches the step, waits for it and returns its output."""
        return self.launch(step, host).result()

    def burst(self, steps: int, ends: Sequence[Sequence[int]]) -> Burst:
        """Returns a burst for `run_burst`: at most `steps` steps, and for each sequence the ids that end it."""
        return Burst(steps, ends)

    def run_burst(self, step: StepDescriptor, burst: Burst) -> None:
        """Runs `step`, in which each sequence decodes one row, and the steps after it. It overwrites `step`."""
        while True:
            out = self.run(step)
            over = burst.last(out)
            burst.put(out, over=over)
            if over:
                return
            step.advance()

    @abstractmethod
    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        """Draws these samples of the last step again from its logits, with the settings that `step` has now.

        Writes the new tokens to the outputs of that step and to the relay slots of the sequences.
        """

    @abstractmethod
    def logits(self, count: int) -> F32:
        """Returns the raw logits of the last step's first `count` samples, (count, vocab), valid from BEFORE_SAMPLE on.

        The array belongs to the executable: the next run overwrites it.
        """

    def rows(self, buffer: Buffer, count: int) -> F32:
        """Returns the first `count` rows of a buffer of the plan, (count, width), as the last step left them. The next
        step overwrites them. Raises UnsupportedError if the host cannot reach them."""
        raise UnsupportedError(f"the rows of {buffer.name} are out of the host's reach")

    def fill(self, buffer: Buffer, rows: F32) -> None:
        """Fills a buffer that no operation of the plan fills with the `rows` of the next step, (rows, width). Raises
        UnsupportedError if the host cannot reach it."""
        raise UnsupportedError(f"the rows of {buffer.name} are out of the host's reach")

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        """Returns by layer the number of rows that each expert computed since the start."""
        return {}

    def used_experts(self) -> tuple[int, ...]:
        """Returns by layer the number of experts with rows in the last step; 0 for a layer without experts."""
        return ()


class Backend(ABC):
    """Owns packed weights and page pools, and runs operations on one kind of hardware."""

    name: str
    fusions: Sequence[Rule] = ()  # the fusion rules whose operations `load` accepts

    @abstractmethod
    def describe(self) -> str:
        """Returns a phrase for logs: backend, instruction set, threads."""

    @abstractmethod
    def matrix(self, enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, *, rows: NDArray[np.int32] | None = None,
               bias: F32 | None = None, columns: NDArray[np.int32] | None = None, slices: int = 1) -> Matrix:
        """Packs `n` rows of `k` elements stored in `raw`; `rows[i]` is the stored row that becomes row i.

        Column i multiplies element `columns[i]` of a row of activations; all matrices of one operation have the same
        columns. K is summed in `slices` slices, which a binary tree joins (docs/numerics.md). Raises ModelFileError if
        a scale of the weights is not finite.
        """

    @abstractmethod
    def stack(self, enc: Encoding, raws: Iterable[NDArray[np.uint8]], count: int, n: int, k: int, *,
              bias: F32 | None = None) -> Stack:
        """Packs `count` matrices of `n` rows, taken from `raws` one after another; `bias` (count, n)."""

    @abstractmethod
    def packed_bytes(self, enc: Encoding, n: int, k: int) -> int:
        """Returns the `nbytes` of a packed matrix of this encoding and shape, and of each matrix in a stack."""

    @abstractmethod
    def vector(self, values: F32) -> Vector:
        """Copies float32 `values` and pads them with zeros."""

    @abstractmethod
    def pool(self, layout: CacheLayout, pages: int) -> Pool:
        """Allocates a pool of `pages` pages. The memory is touched on first use."""

    @abstractmethod
    def load(self, plan: Plan, pools: Sequence[Pool], limits: BackendLimits,
             shared_with: Executable | None = None) -> Executable:
        """Returns an executable of `plan` over one pool per KV group, for steps of at most `limits`.

        Several plans may share the pools. `shared_with`: an executable of this backend that never runs at the same time
        as the new one. The two share the relay slots and, as far as sizes allow, the memory that lives for one step,
        logits included.
        """

    @abstractmethod
    def close(self) -> None:
        """Ends threads and frees memory the backend owns."""


class PackingBackend(Backend):
    """A backend whose packed matrices are plain bytes, which may be stored in a file and loaded again."""

    @abstractmethod
    def packing(self, encodings: Iterable[Encoding]) -> str:
        """Returns an id of the packing of these encodings: another layout has another id."""

    @abstractmethod
    def packed(self, matrix: Matrix | Stack) -> NDArray[np.uint8]:
        """Returns the bytes of a matrix or a stack of this backend, shape (nbytes,)."""

    @abstractmethod
    def adopt(self, enc: Encoding, data: NDArray[np.uint8], n: int, k: int, *, bias: F32 | None = None,
              columns: NDArray[np.int32] | None = None, slices: int = 1) -> Matrix:
        """Returns a matrix over bytes that were packed before. The caller must not change the bytes."""

    @abstractmethod
    def adopt_stack(self, enc: Encoding, data: NDArray[np.uint8], count: int, n: int, k: int, *,
                    bias: F32 | None = None) -> Stack:
        """Returns a stack over packed bytes, its matrices one after another."""
