"""`POST /v1/completions`."""

from __future__ import annotations

import secrets
from typing import cast

from drut.server.http.auth import salt_of
from drut.server.openai.protocol.completions import CompletionRequest
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.fields import decode
from drut.server.openai.protocol.sampling import check_stream, engine_params, first_max_tokens, wants_timings
from drut.server.openai.protocol.structured import constraint_of
from drut.server.service import Loaded, Service
from drut.server.stream.prepared_request import PreparedRequest

DEFAULT_TOKENS = 16  # OpenAI's default


def prepare(body: bytes, service: Service, loaded: Loaded, caller: str) -> PreparedRequest:
    """Parses, checks and tokenizes a request. ApiError for every invalid field."""
    request, ignored = decode(body, CompletionRequest, strict=service.config.strict_fields)
    service.check_model(request.model)
    check_stream(request)
    prompts = each_prompt(request.prompt)
    service.limits.check_choices(len(prompts), request.n or 1, "prompt")
    max_tokens = first_max_tokens(request.max_tokens, DEFAULT_TOKENS)
    if max_tokens == 0 and not request.echo:
        raise ApiError(400, "max_tokens 0 needs echo true: the reply would be empty", param="max_tokens")
    texts, echo = loaded.texts, bool(request.echo)
    if max_tokens == 0 and request.min_tokens:
        raise ApiError(400, f"min_tokens {request.min_tokens} is more than max_tokens 0", param="min_tokens")
    if echo and request.logprobs is not None and request.prompt_logprobs is not None:
        raise ApiError(400, "prompt_logprobs: with echo, logprobs covers the prompt", param="prompt_logprobs")
    scored = request.logprobs if echo and request.logprobs is not None else request.prompt_logprobs
    asked = constraint_of(request.response_format, request.structured_outputs)
    params = engine_params(request, asked, max_tokens=max(1, max_tokens), logprobs=request.logprobs,
                           prompt_logprobs=scored, limits=service.limits, texts=texts)
    add_special = request.add_special_tokens is not False
    return PreparedRequest(
        id=f"cmpl-{secrets.token_hex(12)}", model=service.name, fingerprint=loaded.fingerprint,
        prompts=[texts.prompt(p, add_special=add_special, echo=echo) for p in prompts], params=params,
        priority=request.priority or 0, salt=salt_of(caller, request.cache_salt),
        deadline_s=request.deadline_s, stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        continuous_usage=bool(request.stream_options and request.stream_options.continuous_usage_stats),
        echo=echo, echo_scores=echo and request.logprobs is not None, scoring=max_tokens == 0,
        logprobs=request.logprobs is not None, timings=wants_timings(request),
        prompt_logprobs=request.prompt_logprobs is not None, return_token_ids=bool(request.return_token_ids),
        constraints=() if asked is None else (asked,), ignored=ignored)


def each_prompt(prompt: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """Returns the prompts as a list. ApiError if their types are mixed or there is none."""
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError(400, "prompt is empty", param="prompt")
    kind = type(prompt[0])
    if not all(type(item) is kind for item in prompt):
        raise ApiError(400, "prompt must be a string, a list of strings, a list of token ids or a list of such lists",
                       param="prompt")
    if kind is int:
        return [cast(list[int], prompt)]
    return cast(list[str | list[int]], prompt)
