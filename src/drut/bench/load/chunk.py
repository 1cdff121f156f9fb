"""The chunk of a streamed response, and the chunks that are errors (docs/bench.md, "What counts as failed")."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

MAX_QUEUE_S = 1e6
WHOLE = frozenset({"stop", "length", "tool_calls", "function_call", "eos_token", "stop_sequence"})
"""The finish reasons of a complete response: those of OpenAI except `content_filter`, and two of TGI that mean `stop`.
Every other value, known (`abort`, `error`) or not, is a failure."""

_Count = Annotated[int, Meta(ge=0, lt=1 << 31)]  # an invalid number of tokens makes the response malformed


class FunctionFields(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class ToolCallFields(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionFields | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCallFields] | None = None
    function_call: FunctionFields | None = None


class _Logprobs(msgspec.Struct, gc=False):
    content: list[msgspec.Raw] | None = None  # in chats
    tokens: list[msgspec.Raw] | None = None  # in completions


class ChunkChoiceFields(msgspec.Struct, gc=False):
    index: int | None = None
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count | None = None


class UsageFields(msgspec.Struct, gc=False):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Metrics(msgspec.Struct, gc=False):  # vLLM, --enable-per-request-metrics
    queue_time_ms: Annotated[float, Meta(ge=0, le=MAX_QUEUE_S * 1000)] | None = None


class _Why(msgspec.Struct, gc=False):
    queued_s: Annotated[float, Meta(ge=0, le=MAX_QUEUE_S)] | None = None  # Drut


class ChunkFields(msgspec.Struct, gc=False):
    choices: list[ChunkChoiceFields] | None = None
    usage: UsageFields | None = None
    error: Any = None
    error_code: Any = None  # FastChat
    object: str | None = None
    metrics: _Metrics | None = None
    why: _Why | None = None

    @property
    def is_error(self) -> bool:
        """Returns whether the chunk reports an error, in one of the forms that servers use."""
        return bool(self.error or self.error_code) or self.object == "error"

    @property
    def is_part(self) -> bool:
        """Returns whether the chunk has any field of a response; a chunk may have only usage or times and no
        choices."""
        return any(field is not None for field in (self.choices, self.usage, self.metrics, self.why))


decode = msgspec.json.Decoder(ChunkFields).decode


def broken_finish(reason: str | None) -> bool:
    """Returns whether a finish reason means failure. An empty reason stands for null: the response has not ended."""
    return bool(reason) and reason not in WHOLE


def tokens_of(choice: ChunkChoiceFields) -> int:
    """Returns the number of tokens in a choice by its ids or logprobs, or -1 if it has neither."""
    if choice.token_ids is not None:
        return len(choice.token_ids)
    logprobs = choice.logprobs
    if logprobs is None:
        return -1
    tokens = logprobs.content if logprobs.content is not None else logprobs.tokens
    return -1 if tokens is None else len(tokens)
