"""Structs of `/v1/completions`: requests and replies."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from drut.server.openai.protocol.replies import PromptLogprobs, Timings, Usage
from drut.server.openai.protocol.sampling import MaxTokens, SamplingFields, TopLogprobs

Prompt = Annotated[str | list[str | int | list[int]], Meta(
    description="a text, token ids, or several of either",
    extra_json_schema={"examples": ["Once upon a time", [72, 105], ["a", "b"], [[72], [105]]]})]


class CompletionRequest(SamplingFields, kw_only=True):
    prompt: Prompt
    max_tokens: MaxTokens | None = None
    logprobs: TopLogprobs | None = None
    add_special_tokens: bool | None = None


class CompletionLogprobs(msgspec.Struct):
    """Lists of equal length with one entry per token; with echo the prompt's tokens come first."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, kw_only=True):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: str | None
    stop_reason: str | int | None = None
    token_ids: list[int] | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType | None = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET


class CompletionReply(msgspec.Struct, kw_only=True):
    """A whole reply, or a chunk of a stream; a chunk leaves out the fields that are always null."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    service_tier: UnsetType | None = UNSET
    system_fingerprint: str
    kv_transfer_params: UnsetType | None = UNSET
    timings: Timings | UnsetType = UNSET
