"""The wire format of a dialect: media type and frames of its streams, and the shape of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from drut.server.openai.protocol.errors import ApiError, encode_error
from drut.server.openai.render.parts import parts


class Wire(Protocol):
    """A wire format. `media_type`: of a stream; `keep_alive`: bytes that a stream sends while it has no output."""

    media_type: bytes
    keep_alive: bytes

    def frame(self, event: msgspec.Struct) -> Iterator[bytes]:
        """Yields the bytes of an event of a stream, in parts."""
        ...

    def end(self) -> bytes:
        """Returns the bytes after the last event of a complete stream."""
        ...

    def error_frame(self, error: ApiError) -> bytes:
        """Returns the bytes of an error that ends a stream; nothing follows it."""
        ...

    def error_body(self, error: ApiError) -> bytes:
        """Returns an error as a whole JSON reply."""
        ...


class OpenAIWire:
    """Server-sent events with `[DONE]` after the last one, and OpenAI's errors."""

    media_type = b"text/event-stream; charset=utf-8"
    keep_alive = b": keep-alive\n\n"

    def frame(self, event: msgspec.Struct) -> Iterator[bytes]:
        yield b"data: "
        yield from parts(event)
        yield b"\n\n"

    def end(self) -> bytes:
        return b"data: [DONE]\n\n"

    def error_frame(self, error: ApiError) -> bytes:
        return b"data: %b\n\n" % encode_error(error)

    def error_body(self, error: ApiError) -> bytes:
        return encode_error(error)


OPENAI = OpenAIWire()
