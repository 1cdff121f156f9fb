"""What is asked, and why it may be refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from drut.engine.params import SamplingParams
from drut.errors import DrutError, RequestError

CHARACTERS_PER_TOKEN = 4  # of text that is not encoded yet: for the queue's accounts alone


class QueueFullError(DrutError):
    """The queue has no place. `retry_after_s`: when one should be free, by how fast requests have been finished."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DrainingError(DrutError):
    """The server is shutting down."""


class DeadlineError(DrutError):
    """A request was not finished in the time it gave itself."""


@dataclass(frozen=True)
class Ask:
    """A request. `key` names whose share of the engine it uses; of one key's requests the smaller `priority` goes
    first. `deadline_s` counts from its arrival; `arrived` is that on the monotonic clock, None for now. `follows`: it
    is a later prompt of a request of several, which are admitted together or not at all. `scoring`: only the prompt is
    asked about, so the token drawn behind it is no part of the reply and counts nowhere. For spans alone: `operation`
    names what was asked for, and `trace` are the headers of W3C Trace Context that came along. For the log alone:
    `ignored` are the paths of fields that have no effect.
    """

    prompt: str | list[int]
    params: SamplingParams
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
        """Of a prompt that is text an estimate."""
        if isinstance(self.prompt, str):
            return -(-len(self.prompt) // CHARACTERS_PER_TOKEN)
        return len(self.prompt)
