"""A part of an answer as servers send it, and which of them are no answer (docs/bench.md, "What counts as failed")."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

MOST_QUEUE_S = 1e6
WHOLE = frozenset({"stop", "length", "tool_calls", "function_call", "eos_token", "stop_sequence"})
"""The values of finish_reason after which an answer is whole: OpenAI's but for `content_filter`, and two of TGI that
mean `stop`. Every other value, known (`abort`, `error`) or not, is a failure."""

_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]  # what is no number of tokens is refused with the answer


class Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None


class _Logprobs(msgspec.Struct, gc=False):
    content: list[msgspec.Raw] | None = None  # of a chat
    tokens: list[msgspec.Raw] | None = None  # of a completion


class Choice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Metrics(msgspec.Struct, gc=False):  # vLLM, --enable-per-request-metrics
    queue_time_ms: Annotated[float, Meta(ge=0, le=MOST_QUEUE_S * 1000)] | None = None


class _Why(msgspec.Struct, gc=False):
    queued_s: Annotated[float, Meta(ge=0, le=MOST_QUEUE_S)] | None = None  # Drut


class Chunk(msgspec.Struct, gc=False):
    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    error_code: Any = None  # FastChat
    object: str | None = None
    metrics: _Metrics | None = None
    why: _Why | None = None

    @property
    def is_error(self) -> bool:
        """Whether it reports a fault, in one of the forms that servers use."""
        return bool(self.error or self.error_code) or self.object == "error"

    @property
    def is_part(self) -> bool:
        """Whether it has anything of an answer; a part may have no choices beside its usage or times."""
        return any(field is not None for field in (self.choices, self.usage, self.metrics, self.why))


decode = msgspec.json.Decoder(Chunk).decode


def broken_finish(reason: str | None) -> bool:
    """Whether an answer that ends so is none. An empty reason stands for null: the answer has not ended."""
    return bool(reason) and reason not in WHOLE


def tokens_of(choice: Choice) -> int:
    """Tokens of a part by its ids or logprobs, -1 where it has neither."""
    if choice.token_ids is not None:
        return len(choice.token_ids)
    logprobs = choice.logprobs
    if logprobs is None:
        return -1
    tokens = logprobs.content if logprobs.content is not None else logprobs.tokens
    return -1 if tokens is None else len(tokens)
