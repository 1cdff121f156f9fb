"""Sampling fields that both generation routes share, with their ranges."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from drut.engine.request.params import (
    HIGHEST_ID,
    MAX_CHOICES,
    MAX_IDS,
    MAX_TEMPERATURE,
    MAX_TOKENS,
    PENALTY_RANGE,
    FilledParams,
    SamplingParams,
)
from drut.errors import RequestError
from drut.kernels.descriptor import MAX_TOP_LOGPROBS
from drut.server.http.limits import RequestLimits
from drut.server.openai.prompts import PromptProcessor
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.structured import RequestedFormat, ResponseFormat, StructuredOutputs

T = TypeVar("T")
OWN = "default: the model's own, else"

Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Priority = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1, description="smaller goes first")]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
TokenId = Annotated[int, Meta(ge=0, le=HIGHEST_ID)]
TopLogprobs = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]
MaxTokens = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1, description="-1: to the end of the context")]
Deadline = Annotated[float, Meta(gt=0, le=86400, description="seconds from its arrival after which the request ends "
                                                             "with an error")]
Name = Annotated[str, Meta(max_length=256)]
Bias = Annotated[dict[str, Any], Meta(
    description="a number from -100 to 100 to add to the logit of each token id", max_length=MAX_IDS,
    extra_json_schema={"additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
                       "propertyNames": {"pattern": "^[0-9]{1,10}$"}})]


class StreamOptions(msgspec.Struct):
    """Options of a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingFields(msgspec.Struct, kw_only=True):
    """OpenAI's fields, then vLLM's."""

    model: Name | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=MAX_TEMPERATURE, description=f"{OWN} 1")] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1, description=f"{OWN} 1, off")] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    seed: Int64 | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Bias | None = None
    stop: str | list[str] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 30, description=f"0 and -1: all; {OWN} 0, off")] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1, description=f"{OWN} 0, off")] | None = None
    repetition_penalty: Annotated[float, Meta(ge=PENALTY_RANGE[0], le=PENALTY_RANGE[1],
                                              description=f"{OWN} 1, off")] | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_IDS)] | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: TopLogprobs | None = None
    return_token_ids: bool | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    priority: Priority | None = None
    echo: bool | None = None
    deadline_s: Deadline | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    speculation: bool | None = None
    timings: bool | None = None
    timings_per_token: bool | None = None


def engine_params(request: SamplingFields, asked: RequestedFormat | None, *, max_tokens: int, logprobs: int | None,
                  prompt_logprobs: int | None, limits: RequestLimits, texts: PromptProcessor) -> FilledParams:
    """Returns the sampling parameters of a request, completed with the model's defaults; `asked`: the constraint of
    its output. ApiError 400 names the invalid field."""
    bias = _biases(request.logit_bias)
    stop_ids = request.stop_token_ids or []
    texts.in_vocabulary(list(bias or ()), "logit_bias")
    texts.in_vocabulary(stop_ids, "stop_token_ids")
    stop = limits.stop_strings(request.stop)
    if stop and texts.tokenizer is None:
        raise ApiError(400, "stop: this model has no tokenizer, so its output is no text", param="stop")
    if (request.min_tokens or 0) > max_tokens:
        raise ApiError(400, f"min_tokens {request.min_tokens} is more than max_tokens {max_tokens}", param="min_tokens")
    if asked is not None and texts.tokenizer is None:
        raise ApiError(400, f"{asked.path}: this model has no tokenizer, so its output is no text",
                       param=asked.path)
    try:
        return SamplingParams(
            max_tokens=min(max_tokens, texts.room), temperature=request.temperature, top_p=request.top_p,
            top_k=None if request.top_k is None else max(0, request.top_k), min_p=request.min_p,
            seed=request.seed, n=_or(request.n, 1), stop=stop, stop_token_ids=stop_ids,
            min_tokens=min(request.min_tokens or 0, texts.room), ignore_eos=bool(request.ignore_eos),
            include_stop_str_in_output=bool(request.include_stop_str_in_output),
            skip_special_tokens=request.skip_special_tokens is not False,
            repetition_penalty=request.repetition_penalty, speculation=request.speculation is not False,
            presence_penalty=_or(request.presence_penalty, 0.0), frequency_penalty=_or(request.frequency_penalty, 0.0),
            logit_bias=bias, logprobs=logprobs, prompt_logprobs=prompt_logprobs,
            constraint=asked.constraint if asked is not None else None).filled(texts.sampling)
    except RequestError as error:
        field = str(error).partition(" ")[0]
        raise ApiError(400, str(error), param=field if field in request.__struct_fields__ else None) from None


def wants_timings(request: SamplingFields) -> bool:
    """Returns whether the reply has its times; llama.cpp's clients ask with `timings_per_token`."""
    return bool(request.timings or request.timings_per_token)


def check_stream(request: SamplingFields) -> None:
    """Raises ApiError 400 for fields that do not work in a stream, or work only in one."""
    if request.stream_options is not None and not request.stream:
        raise ApiError(400, "stream_options needs stream true", param="stream_options")
    if request.stream and request.prompt_logprobs is not None:
        raise ApiError(400, "prompt_logprobs and stream cannot be combined", param="prompt_logprobs")


def first_max_tokens(*given: int | None) -> int:
    """Returns the first that is not None; -1 means no limit but the context length."""
    value = next(tokens for tokens in given if tokens is not None)
    return MAX_TOKENS if value == -1 else value


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


def _biases(given: dict[str, Any] | None) -> dict[int, float] | None:
    biases: dict[int, float] = {}
    for key, value in (given or {}).items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise ApiError(400, f"logit_bias: {key[:40]!r} is not a token id", param="logit_bias")
        if isinstance(value, bool) or not isinstance(value, int | float) or not -100 <= value <= 100:
            raise ApiError(400, f"logit_bias of {key}: must be a number from -100 to 100", param="logit_bias")
        biases[int(key)] = float(value)
    return biases or None
