"""A dialect: renders output as events of a stream or as a whole reply, which `render.parts` encodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from drut.server.openai.protocol.replies import CompletionDetails, PromptDetails, Usage
from drut.server.stream.assembler import Assembler, TextPiece
from drut.server.stream.prepared_request import PreparedRequest


class Dialect(Protocol):
    """Renders the output of one request."""

    def events(self, piece: TextPiece) -> Iterable[msgspec.Struct]:
        """Yields the events of a stream for a piece of output."""

    def usage_event(self) -> msgspec.Struct:
        """Returns the last event, if the client wants it: no choices, but the usage of all of them."""

    def reply(self, pieces: Sequence[TextPiece]) -> msgspec.Struct:
        """Returns the whole reply, from one piece per choice."""


def usage_so_far(job: PreparedRequest, done: int) -> Usage:
    """Returns the usage after `done` output tokens of all choices."""
    return Usage(prompt_tokens=job.prompt_tokens, completion_tokens=done, total_tokens=job.prompt_tokens + done)


def usage(job: PreparedRequest, assembler: Assembler) -> Usage:
    """Returns the usage of a finished request. Each prompt counts once, independent of n."""
    made = usage_so_far(job, assembler.completion_tokens)
    made.prompt_tokens_details = PromptDetails(assembler.cached_tokens)
    if job.params.reasoning is not None:
        made.completion_tokens_details = CompletionDetails(assembler.reasoning_tokens)
    return made
