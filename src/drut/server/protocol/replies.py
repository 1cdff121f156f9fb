"""Parts that replies of several routes share."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class PromptLogprob(msgspec.Struct):
    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class PromptDetails(msgspec.Struct):
    """`cached_tokens`: prompt tokens whose keys and values were there already."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """`reasoning_tokens`: of thoughts with their marks."""

    reasoning_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    completion_tokens_details: CompletionDetails | UnsetType = UNSET
