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


class Timings(msgspec.Struct, kw_only=True):
    """llama.cpp's: of the prompts, those of their tokens that were in the cache or had to be computed; of the answers,
    all their tokens. Times without waiting in a queue; of several prompts those of the one that took longest."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails | UnsetType = UNSET
    completion_tokens_details: CompletionDetails | UnsetType = UNSET
