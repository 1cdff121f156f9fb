"""Parses a request, and counts its prompt tokens by the mock's tokenizer: one for each word."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from drut.errors import RequestError

DEFAULT_MAX_TOKENS = 16
MAX_TOKENS = 1_000_000


class MockStreamOptions(msgspec.Struct, frozen=True):
    """The stream options of a request."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class MockMessage(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    content: str | list[dict[str, Any]] | None = None


class Body(msgspec.Struct, frozen=True):
    """The fields of a request that the mock uses; all others are ignored."""

    prompt: str | list[Any] | None = None
    messages: list[MockMessage] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    ignore_eos: bool = False
    stream: bool | None = None
    stream_options: MockStreamOptions | None = None


class MockAsk(msgspec.Struct, frozen=True):
    """A parsed request."""

    chat: bool
    stream: bool
    prompt_tokens: int
    max_tokens: int
    ignore_eos: bool
    include_usage: bool
    continuous_usage: bool


_DECODER = msgspec.json.Decoder(Body)


def parse_ask(chat: bool, body: bytes) -> MockAsk:
    """Parses a request. Raises RequestError if the body is invalid for the endpoint."""
    fields = parse_body(body)
    if chat and fields.messages is None:
        raise RequestError("messages is missing")
    if not chat and fields.prompt is None:
        raise RequestError("prompt is missing")
    wanted = fields.max_completion_tokens or fields.max_tokens or DEFAULT_MAX_TOKENS
    if not 1 <= wanted <= MAX_TOKENS:
        raise RequestError(f"max_tokens must be from 1 to {MAX_TOKENS}, not {wanted}")
    options = fields.stream_options or MockStreamOptions()
    return MockAsk(chat=chat, stream=bool(fields.stream), prompt_tokens=prompt_tokens(fields), max_tokens=wanted,
                   ignore_eos=fields.ignore_eos, include_usage=options.include_usage,
                   continuous_usage=options.continuous_usage_stats)


def parse_body(body: bytes) -> Body:
    """Parses a body. Raises RequestError if it is not JSON or a field has the wrong type."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"body: {error}") from None


def prompt_tokens(body: Body) -> int:
    """Returns the number of prompt tokens: words of text, or token ids."""
    if body.messages is not None:
        return sum(len(text.split()) for text in texts(body))
    if isinstance(body.prompt, list) and all(isinstance(item, int) for item in body.prompt):
        return len(body.prompt)
    return sum(len(text.split()) for text in texts(body))


def texts(body: Body) -> list[str]:
    """Returns the text of the prompt, in parts."""
    if body.messages is None:
        parts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
        return [part for part in parts if isinstance(part, str)]
    found = []
    for message in body.messages:
        if isinstance(message.content, str):
            found.append(message.content)
        else:
            found += [part["text"] for part in message.content or [] if isinstance(part.get("text"), str)]
    return found


def tokenize(body: Body) -> list[int]:
    """Returns an id below 2^16 for each word."""
    return [zlib.crc32(word.encode(errors="replace")) & 0xFFFF for text in texts(body) for word in text.split()]
