"""A request for admission, and the errors that may refuse or end it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from drut.engine.request.params import FilledParams
from drut.errors import DrutError, RequestError

CHARACTERS_PER_TOKEN = 4  # of text that is not tokenized yet: an estimate for the queue alone


class QueueFullError(DrutError):
    """The queue is full. `retry_after_s`: seconds until it should have room, by the rate of finished requests."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DrainingError(DrutError):
    """The server is shutting down."""


class DeadlineError(DrutError):
    """A request was not finished by its deadline."""


@dataclass(frozen=True)
class QueuedRequest:
    """A request for admission.

    `key`: the API key whose share of the engine it uses. Of one key's requests the smaller `priority` goes first.
    `deadline_s`: seconds from its arrival. `arrived`: its arrival on the monotonic clock; None: now.
    `follows`: it is a later prompt of an HTTP request with several, which are admitted together or not at all.
    `scoring`: the reply has only the prompt; the token drawn after it counts in no metric.
    `operation` and `trace`, the headers of W3C Trace Context, are for spans alone.
    `ignored`: paths of fields without effect, for the log alone.
    """

    prompt: str | list[int]
    params: FilledParams
    key: str = ""
    priority: int = 0
    salt: str = ""
    deadline_s: float | None = None
    id: str = ""
    arrived: float | None = None
    follows: bool = False
    operation: str = "text_completion"
    scoring: bool = False
    trace: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.deadline_s is not None and not 0 < self.deadline_s < math.inf:
            raise RequestError(f"deadline_s must be a positive number of seconds, not {self.deadline_s}")

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt; an estimate if it is text."""
        if isinstance(self.prompt, str):
            return -(-len(self.prompt) // CHARACTERS_PER_TOKEN)
        return len(self.prompt)
