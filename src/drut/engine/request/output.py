"""The results of a request: a finished completion, and the chunks of a stream."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from drut.errors import DrutError
from drut.foreign import COMPLETION
from drut.observe.trace import RequestTrace


class Logprob(NamedTuple):
    """The logprob of one id at one position: natural log of its probability by the raw logits, its rank from 1, its
    text."""

    logprob: float
    rank: int
    decoded: str


Logprobs = dict[int, Logprob]


@dataclass(frozen=True)
class Completion:
    """The finished output of one choice. `timings` in seconds and tokens per second; `why` is the request trace."""

    text: str
    token_ids: list[int]
    finish_reason: str  # "stop", "length", "abort", or "error" (in an AnswerError alone)
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seed: int
    index: int = 0  # of the choice
    timings: dict[str, float] = field(default_factory=dict)
    logprobs: list[Logprobs] | None = None  # one entry a token
    prompt_logprobs: list[Logprobs | None] | None = None  # one entry a prompt token, the first None
    why: RequestTrace = field(default_factory=RequestTrace)
    stop_reason: str | int | None = None  # the stop string or stop id that ended it; None for EOS
    reasoning_tokens: int | None = None  # marks included; None if `params.reasoning` was not given

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raises AttributeError, with our name for those that users of other libraries know."""
            hint = f": {COMPLETION[name]}" if name in COMPLETION else ""
            raise AttributeError(f"a Completion has no {name!r}{hint}")

    def __repr__(self) -> str:
        return (f"Completion({shortened(self.text)}, {counted(self.completion_tokens)}, "
                f"finish_reason={self.finish_reason!r}{f', index={self.index}' * (self.index > 0)})")

    def to_json(self) -> dict[str, Any]:
        """Returns plain data; logprobs as {id: {logprob, rank, decoded}}."""
        data = asdict(self)
        for name in ("logprobs", "prompt_logprobs"):
            entries = getattr(self, name)
            if entries is None:
                del data[name]
            else:
                data[name] = [e and {str(i): p._asdict() for i, p in e.items()} for e in entries]
        return data


class AnswerError(DrutError):
    """Some requests of a batch failed. Raised after all others are finished.

    `completions` has all of the batch in order. A failed one has the `finish_reason` "error" and its output up to the
    failure.
    """

    def __init__(self, message: str, completions: list[Completion]) -> None:
        super().__init__(message)
        self.completions = completions


@dataclass(frozen=True)
class Chunk:
    """New text and ids of a streamed choice; `completion` is set in the last chunk of the choice.

    `logprobs` has an entry for each of `token_ids`, if requested, and `text_lengths` the number of characters that each
    id adds to the decoded text, stop strings included. `prompt_logprobs` come whole, with the first token of the first
    choice. Text that may become part of a stop string is held back, so it comes later than its ids.
    """

    text: str
    token_ids: list[int]
    completion: Completion | None = None
    index: int = 0
    logprobs: list[Logprobs] | None = None
    prompt_logprobs: list[Logprobs | None] | None = None
    text_lengths: list[int] | None = None

    def __repr__(self) -> str:
        index = f", index={self.index}" * (self.index > 0)
        last = f", completion={self.completion!r}" * (self.completion is not None)
        return f"Chunk({shortened(self.text)}, {counted(len(self.token_ids))}{index}{last})"


def shortened(text: str) -> str:
    """Returns the literal of a text, of at most 60 characters."""
    literal = repr(text)
    return literal if len(literal) <= 60 else f"{literal[:40]}...{literal[-17:]}"


def counted(tokens: int) -> str:
    return f"{tokens} token{'s' * (tokens != 1)}"
