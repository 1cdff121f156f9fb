"""What a backend does for the layers above: keep weights, give room, run plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import Encoding
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import KvLayout
from drut.kernels.ops import F32
from drut.kernels.plan import Plan
from drut.kernels.weight import Matrix, Vector


class Limits(NamedTuple):
    """The largest step an executable must take."""

    rows: int
    samples: int
    relay_slots: int


class StepOutput(NamedTuple):
    """Of the last step, by sample: token ids (int32), and whether the logits were finite."""

    tokens: NDArray[np.int32]
    finite: NDArray[np.bool_]


class Executable(ABC):
    """A plan made ready to run over one page pool."""

    @abstractmethod
    def run(self, step: StepDescriptor) -> StepOutput:
        """Runs every segment. The output arrays are reused by the next run."""

    @abstractmethod
    def logits(self, count: int) -> F32:
        """Raw logits of the last step's first `count` samples, (count, vocab); reused by the next run."""


class Backend(ABC):
    """One way to compute: where weights live and who runs the operations."""

    name: str

    @abstractmethod
    def describe(self) -> str:
        """One phrase for people: backend, instruction set, threads."""

    @abstractmethod
    def matrix(self, enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, *, rows: NDArray[np.int32] | None = None,
               bias: F32 | None = None) -> Matrix:
        """Packs `n` rows of `k` elements stored in `raw`; `rows[i]` says which stored row becomes row i."""

    @abstractmethod
    def vector(self, values: F32) -> Vector:
        """Keeps float32 `values`, padded with zeros."""

    @abstractmethod
    def pool(self, layout: KvLayout, pages: int) -> NDArray[np.uint8]:
        """Room for `pages` pages, (pages, page_bytes), touched on first use."""

    @abstractmethod
    def load(self, plan: Plan, pool: NDArray[np.uint8], limits: Limits) -> Executable:
        """Makes `plan` ready; buffers hold `limits.rows` rows."""

    @abstractmethod
    def close(self) -> None:
        """Ends threads and frees memory the backend owns."""
