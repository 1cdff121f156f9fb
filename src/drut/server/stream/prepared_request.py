"""A prepared request: parsed, checked and tokenized, ready to be admitted."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from drut.engine.request.params import FilledParams
from drut.parse.reading import PLAIN, Reading
from drut.server.openai.protocol.structured import RequestedFormat


@dataclass(frozen=True)
class PreparedPrompt:
    """The token ids of a prompt, and its text if the reply repeats it.

    The first `unwritten` ids (BOS) have no text in `text`.
    """

    ids: list[int]
    text: str = ""
    unwritten: int = 0


@dataclass(frozen=True)
class PreparedRequest:
    """A prepared request. `params` go to the engine; the other fields describe the reply."""

    id: str
    model: str
    fingerprint: str
    prompts: list[PreparedPrompt]
    params: FilledParams
    priority: int = 0
    salt: str = ""
    deadline_s: float | None = None
    stream: bool = False
    include_usage: bool = False  # a stream ends with a chunk that has the usage
    continuous_usage: bool = False  # every chunk has the usage so far
    echo: bool = False  # the prompt's text precedes the output
    echo_scores: bool = False  # with the prompt's logprobs
    scoring: bool = False  # max_tokens 0: the one output token is dropped
    logprobs: bool = False
    prompt_logprobs: bool = False  # as a field of the reply
    return_token_ids: bool = False
    operation: str = "text_completion"  # or "chat": the name in a span
    reading: Reading = PLAIN  # how the output of a chat is parsed
    include_reasoning: bool = True
    constraints: tuple[RequestedFormat, ...] = ()  # compiled before admission
    timings: bool = False  # in the reply; of a stream in its last events
    ignored: tuple[str, ...] = ()
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def prompt_tokens(self) -> int:
        return sum(len(p.ids) for p in self.prompts)
