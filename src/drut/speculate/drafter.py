"""The interface of drafters to the engine.

A draft never changes a token: the step that verifies it samples each position as usual and accepts drafts while they
equal the samples. So a drafter may propose anything, at any time, and use any state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Anchor(NamedTuple):
    """A sequence that may be drafted: all its tokens are known, and at most `most` drafts can be used."""

    sequence: int  # unique during the engine's lifetime
    tokens: Sequence[int]
    most: int


class Landed(NamedTuple):
    """The result of a verification: `tokens` are the `accepted` drafts of `drafted`, and the token sampled after
    them."""

    sequence: int
    tokens: Sequence[int]
    drafted: int
    accepted: int


class Drafter(Protocol):
    """The interface. Threads: the engine's thread calls it, between two steps."""

    def propose(self, anchors: Sequence[Anchor]) -> Sequence[Sequence[int]]:
        """Returns drafts of the tokens that follow each anchor, in order; an empty draft is valid."""
        ...

    def commit(self, landed: Sequence[Landed]) -> None:
        """Takes the results of verifications."""
        ...

    def forget(self, sequence: int) -> None:
        """Drops the state of a sequence that has ended."""
        ...
