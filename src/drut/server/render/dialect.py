"""What one way of asking makes of pieces: events of a stream, or a whole reply, for `render.parts` to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from drut.server.job import Job
from drut.server.pieces import Assembler, Piece
from drut.server.protocol.replies import CompletionDetails, PromptDetails, Usage


class Dialect(Protocol):
    """Forms of replies, made of pieces."""

    def events(self, piece: Piece) -> Iterable[msgspec.Struct]:
        """What a stream says of a piece."""

    def usage_event(self) -> msgspec.Struct:
        """The last event, where the client wants one: no choices, but the usage of them all."""

    def reply(self, pieces: Sequence[Piece]) -> msgspec.Struct:
        """The whole answer: one piece a choice."""


def usage_so_far(job: Job, done: int) -> Usage:
    """With `done` tokens of all answers."""
    return Usage(prompt_tokens=job.prompt_tokens, completion_tokens=done, total_tokens=job.prompt_tokens + done)


def usage(job: Job, assembler: Assembler) -> Usage:
    """Each prompt counts once, whatever n is."""
    made = usage_so_far(job, assembler.completion_tokens)
    made.prompt_tokens_details = PromptDetails(assembler.cached_tokens)
    if job.params.thought is not None:
        made.completion_tokens_details = CompletionDetails(assembler.reasoning_tokens)
    return made
