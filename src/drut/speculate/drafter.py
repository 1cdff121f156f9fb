"""The interface of drafters to the engine.

A draft never changes a token: the step that verifies it samples each position as usual and accepts drafts while they
equal the samples. So a drafter may propose anything, at any time, and use any state of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from drut.cache.cache import BlockTable
from drut.kernels.descriptor import Edits, SampleSettings
from drut.kernels.ops import F32


class DraftSampling(NamedTuple):
    """How the engine samples a sequence. A drafter that samples in the same way, with the same noise, agrees most often
    with the engine. `edits`: the changes of the logits for the token after some drafts."""

    settings: SampleSettings
    seed: int
    choice: int
    edits: Callable[[Sequence[int]], Edits | None]


class DraftInput(NamedTuple):
    """A sequence to propose drafts for, with the tokens that the host has; at most `max_drafts` drafts can be
    verified. The first `prompt_tokens` are the prompt. Sequences with different salts must not influence each other."""

    sequence: int  # unique during the engine's lifetime
    tokens: Sequence[int]
    max_drafts: int
    prompt_tokens: int = 0
    salt: str = ""
    table: BlockTable | None = None  # its pages, of the drafter too
    epoch: int = 0  # changes when the pages were freed
    sampling: DraftSampling | None = None


class VerifiedDrafts(NamedTuple):
    """The result of a verification: `tokens` are the `accepted` drafts of `drafted`, and the token sampled after
    them."""

    sequence: int
    tokens: Sequence[int]
    drafted: int
    accepted: int


class Drafter(Protocol):
    """The interface. Threads: the engine's thread calls it, between two steps."""

    def propose(self, inputs: Sequence[DraftInput]) -> Sequence[Sequence[int]]:
        """Returns for each input its drafts of the next tokens, in order; an empty draft is valid.

        Not every draft is verified: the engine also asks for drafts to compare them with the tokens that come."""
        ...

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """Takes the results of verifications."""
        ...

    def forget(self, sequence: int) -> None:
        """Drops the state of a sequence that has ended."""
        ...

    def method(self, sequence: int) -> str:
        """Returns the name of the method that made the last drafts of a sequence."""
        ...


class ModelDrafter(ABC):
    """A Drafter that runs steps of its own on the engine's backend: no other step may run while it proposes."""

    @abstractmethod
    def propose(self, inputs: Sequence[DraftInput]) -> Sequence[Sequence[int]]: ...

    @abstractmethod
    def pace(self, streams: int) -> None:
        """Takes the number of sequences that decode now. The next proposal must not make them wait for long."""

    @abstractmethod
    def seconds(self, drafts: int, sequences: int, context: int) -> float:
        """Returns the predicted time to draft `drafts` tokens of each of some sequences of `context` tokens."""

    @abstractmethod
    def commit(self, verified: Sequence[VerifiedDrafts]) -> None: ...

    @abstractmethod
    def forget(self, sequence: int) -> None: ...

    @abstractmethod
    def method(self, sequence: int) -> str: ...


class TapDrafter(ModelDrafter):
    """A drafter over the target's residual streams."""

    @abstractmethod
    def observe(self, sequence: int, epoch: int, start: int, rows: F32) -> None:
        """Takes the taps of rows of a finished step, of the tokens from position `start` on, (rows, width); without
        those of drafts that were not accepted. `epoch`: as in `DraftInput`."""
