"""Structs that replies of several routes share."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class PromptLogprob(msgspec.Struct):
    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class PromptDetails(msgspec.Struct):
    """`cached_tokens`: prompt tokens found in the prefix cache."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """`reasoning_tokens`: tokens of the reasoning, its marks included."""

    reasoning_tokens: int


class Timings(msgspec.Struct, kw_only=True):
    """Token counts and times of a reply, with llama.cpp's names.

    `cache_n` and `prompt_n` count prompt tokens found in the cache and computed; `predicted_n` counts output tokens;
    `draft_n` counts drafts that were verified, if there were any.
    Times exclude the queue; of several prompts the longest time is reported.
    """

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int | UnsetType = UNSET
    draft_n_accepted: int | UnsetType = UNSET


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    completion_tokens_details: CompletionDetails | UnsetType = UNSET
