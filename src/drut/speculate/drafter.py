"""What guesses tokens, as the engine sees it.

A draft never changes a token: the step that verifies it draws each position as ever and accepts while the draft equals
the draw. So a drafter may guess anything, at any time, and use any state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Anchor(NamedTuple):
    """A sequence that may be drafted: all its tokens are known, and at most `most` drafts can be used."""

    sequence: int  # unique for the engine's life
    tokens: Sequence[int]
    most: int


class Landed(NamedTuple):
    """What a verification brought: `tokens` are the `accepted` drafts of `drafted`, and the token drawn after them."""

    sequence: int
    tokens: Sequence[int]
    drafted: int
    accepted: int


class Drafter(Protocol):
    """Called on the engine's thread, between two steps."""

    def propose(self, anchors: Sequence[Anchor]) -> Sequence[Sequence[int]]:
        """Guesses of the tokens that follow each anchor, in order; none is a valid guess."""
        ...

    def commit(self, landed: Sequence[Landed]) -> None:
        """Takes what verifications brought."""
        ...

    def forget(self, sequence: int) -> None:
        """A sequence has ended."""
        ...
