"""`POST /v1/chat/completions`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

import msgspec

from drut.server.auth import salt_of
from drut.server.job import Job, PreparedPrompt
from drut.server.protocol.chat import ChatRequest, Message
from drut.server.protocol.errors import ApiError, unsupported
from drut.server.protocol.fields import decode
from drut.server.protocol.sampling import MOST_TOKENS, check_stream, engine_params
from drut.server.service import Loaded, Service
from drut.server.texts import Texts

ROLES = frozenset(("system", "developer", "user", "assistant"))
MESSAGE_FIELDS = frozenset(Message.__struct_encode_fields__)
EMPTY = (b"null", b"[]")


class _Raw(msgspec.Struct):
    messages: list[dict[str, msgspec.Raw]]


def prepare(body: bytes, service: Service, loaded: Loaded, caller: str) -> Job:
    """Everything that can be said against a request is said here. ApiError."""
    request, ignored = decode(body, ChatRequest, strict=service.config.strict_fields)
    service.check_model(request.model)
    check_stream(request)
    service.limits.check_choices(1, request.n or 1)
    logprobs = _logprobs(request)
    max_tokens = request.max_completion_tokens or request.max_tokens or MOST_TOKENS
    params = engine_params(request, max_tokens=max_tokens, logprobs=logprobs, prompt_logprobs=request.prompt_logprobs,
                           limits=service.limits, texts=loaded.texts)
    messages = plain_messages(request.messages, body, service)
    ids = chat_ids(loaded.texts, messages, request.chat_template_kwargs,
                   add_generation_prompt=request.add_generation_prompt, continue_final=request.continue_final_message)
    echo = bool(request.echo) and messages[-1]["role"] == "assistant"
    return Job(
        id=f"chatcmpl-{secrets.token_hex(12)}", model=service.name, fingerprint=loaded.fingerprint,
        prompts=[PreparedPrompt(ids, messages[-1]["content"] if echo else "", len(ids))], params=params,
        priority=request.priority or 0, salt=salt_of(caller, request.cache_salt),
        deadline_s=request.deadline_s, stream=bool(request.stream),
        include_usage=bool(request.stream_options and request.stream_options.include_usage),
        continuous_usage=bool(request.stream_options and request.stream_options.continuous_usage_stats),
        echo=echo, logprobs=logprobs is not None, prompt_logprobs=request.prompt_logprobs is not None,
        return_token_ids=bool(request.return_token_ids), operation="chat", ignored=ignored)


def _logprobs(request: ChatRequest) -> int | None:
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs:
        raise ApiError(400, "top_logprobs needs logprobs true", param="top_logprobs")
    return None


def plain_messages(messages: Sequence[Message], body: bytes, service: Service) -> list[dict[str, str]]:
    """Messages with their text as one string. ApiError names a part, role or field that is not supported."""
    service.limits.check_messages(len(messages))
    plain = []
    for i, (message, raw) in enumerate(zip(messages, msgspec.json.decode(body, type=_Raw).messages, strict=True)):
        for name, value in raw.items():
            if name not in MESSAGE_FIELDS and bytes(value) not in EMPTY:
                raise unsupported(f"messages[{i}].{name[:40]}")
        if message.role not in ROLES:
            raise unsupported(f"messages[{i}].role {message.role[:40]!r}")
        made = {"role": message.role, "content": _text(i, message)}
        if message.name is not None:
            made["name"] = message.name
        plain.append(made)
    return plain


def _text(index: int, message: Message) -> str:
    if message.content is None:
        raise ApiError(400, f"messages[{index}].content is missing", param="messages")
    if isinstance(message.content, str):
        return message.content
    texts = []
    for j, part in enumerate(message.content):
        if part.type != "text":
            raise unsupported(f"messages[{index}].content[{j}] of type {part.type[:40]!r}")
        if part.text is None:
            raise ApiError(400, f"messages[{index}].content[{j}].text is missing", param="messages")
        texts.append(part.text)
    return "".join(texts)


def chat_ids(texts: Texts, messages: list[dict[str, str]], kwargs: Mapping[str, object] | None, *,
             add_generation_prompt: bool | None, continue_final: bool | None, fit: bool = True) -> list[int]:
    """Token ids of a conversation; template variables only where the model's template looks at them."""
    if continue_final and add_generation_prompt:
        raise ApiError(400, "continue_final_message and add_generation_prompt cannot both be true",
                       param="continue_final_message")
    allowed = texts.template.variables if texts.template is not None else frozenset[str]()
    for name in kwargs or ():
        if name not in allowed:
            known = ", ".join(sorted(allowed)) or "none"
            raise ApiError(400, f"chat_template_kwargs: this model's template does not look at {name[:40]!r}; it "
                                f"does at: {known}", code="unsupported_parameter", param="chat_template_kwargs")
    return texts.chat(messages, kwargs or {}, continue_final=bool(continue_final), fit=fit,
                      add_generation_prompt=add_generation_prompt is not False and not continue_final)
