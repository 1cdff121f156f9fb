"""A request made ready: all that is left to do is to compute it and to say what came."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from drut.engine.params import SamplingParams
from drut.parse.reading import PLAIN, Reading
from drut.server.protocol.structured import Asked


@dataclass(frozen=True)
class PreparedPrompt:
    """Token ids, and the text they stand for where the reply repeats it.

    The first `unwritten` ids (BOS) stand for nothing in `text`.
    """

    ids: list[int]
    text: str = ""
    unwritten: int = 0


@dataclass(frozen=True)
class Job:
    """`params` go to the engine; the rest says how its answers are told."""

    id: str
    model: str
    fingerprint: str
    prompts: list[PreparedPrompt]
    params: SamplingParams
    priority: int = 0
    salt: str = ""
    deadline_s: float | None = None
    stream: bool = False
    include_usage: bool = False  # a last chunk of a stream with the usage
    continuous_usage: bool = False  # and the usage so far in every chunk
    echo: bool = False  # the prompt's text before the answer's
    echo_scores: bool = False  # and its logprobs
    scoring: bool = False  # max_tokens 0: the answer itself is dropped
    logprobs: bool = False
    prompt_logprobs: bool = False  # as a field of the reply
    return_token_ids: bool = False
    operation: str = "text_completion"  # or "chat": what a span calls it
    reading: Reading = PLAIN  # of a chat's answers
    tell_thought: bool = True
    constraints: tuple[Asked, ...] = ()  # to be compiled before it is admitted
    timings: bool = False  # in the reply; of a stream in its last events
    ignored: tuple[str, ...] = ()
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def prompt_tokens(self) -> int:
        return sum(len(p.ids) for p in self.prompts)
