"""The interface of drafters to the engine.

A draft never changes a token: the step that verifies it samples each position as usual and accepts drafts while they
equal the samples. So a drafter may propose anything, at any time, and use any state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class DraftInput(NamedTuple):
    """A sequence to propose drafts for: all its tokens are known, and at most `max_drafts` drafts can be verified."""

    sequence: int  # unique during the engine's lifetime
    tokens: Sequence[int]
    max_drafts: int


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
        """Returns for each input its drafts of the next tokens, in order; an empty draft is valid."""
        ...

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """Takes the results of verifications."""
        ...

    def forget(self, sequence: int) -> None:
        """Drops the state of a sequence that has ended."""
        ...
