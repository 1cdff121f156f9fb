"""One HTTP request and its reply, directly on ASGI to keep the cost of each chunk low."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from typing import Any

from drut.server.openai.protocol.errors import ApiError, encode_error

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

JSON = b"application/json"
CONNECTION = "drut.connection"  # the transport, among a scope's extensions
MAX_ID_CHARS = 128
TRACE_HEADERS = ("traceparent", "tracestate")
DISCARD_BYTES, DISCARD_S = 64 << 20, 1.0  # of a body that is too large, read and dropped


class HttpExchange:
    """One HTTP request and its reply. `id` names it in headers and logs: the client's X-Request-Id, or a new id."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            self.headers.setdefault(name, value)
        self.id = _printable(self.header("x-request-id")) or secrets.token_hex(12)
        self.status: int | None = None  # once a reply has begun
        self.error: ApiError | None = None  # that the reply is, or that a stream ended with
        self.arrived = time.monotonic()

    @property
    def started(self) -> bool:
        """Returns whether a reply has begun."""
        return self.status is not None

    @property
    def age_s(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self.arrived

    def header(self, name: str) -> str:
        return self.headers.get(name.encode(), b"").decode("latin-1")

    @property
    def trace(self) -> dict[str, str]:
        """Returns the request's headers of W3C Trace Context."""
        return {name: value for name in TRACE_HEADERS if (value := self.header(name))}

    async def body(self, most: int, timeout_s: float) -> bytes:
        """Reads the request's body. ApiError 413 for more than `most` bytes, 408 if it does not arrive in time."""
        length = self.headers.get(b"content-length", b"")
        too_large = length.isdigit() and (len(length) > 18 or int(length) > most)
        data = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                while not too_large:
                    part, more = await self._body_part()
                    data += part
                    if not more:
                        return bytes(data)
                    too_large = len(data) > most
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {timeout_s:g} s", code="timeout") from None
        await self._discard()
        raise ApiError(413, f"the body is longer than {most} bytes (--max-body-mb)", code="body_too_large")

    async def _body_part(self) -> tuple[bytes, bool]:
        """Returns the next part of the body, and whether more follows."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        return message.get("body", b""), message.get("more_body", False)

    async def _discard(self) -> None:
        """Reads and drops the rest of the body for a while: a client that is still sending would not see the reply."""
        if b"expect" in self.headers:
            return
        left, more = DISCARD_BYTES, True
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                while more and left > 0:
                    part, more = await self._body_part()
                    left -= len(part)

    async def gone(self) -> None:
        """Returns when the client has closed the connection. Call it only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def reply(self, status: int, body: bytes, kind: bytes = JSON, headers: Headers = ()) -> None:
        """Sends a whole reply."""
        await self._start(status, [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *headers])
        await self._write(body, more=False)

    async def reply_in_parts(self, status: int, parts: AsyncIterator[bytes], headers: Headers = ()) -> None:
        """Sends a whole JSON reply part by part, with chunked encoding if it has more than one part."""
        first, second = await anext(parts, b""), await anext(parts, b"")
        if self.scope["http_version"] == "1.0":  # it has no chunked encoding
            return await self.reply(status, first + second + b"".join([part async for part in parts]), headers=headers)
        if not second:
            return await self.reply(status, first, headers=headers)
        await self._start(status, [(b"content-type", JSON), *headers])
        await self._write(first + second, more=True)
        async for part in parts:
            await self._write(part, more=True)
        await self._write(b"", more=False)

    async def fail(self, error: ApiError, encode: Callable[[ApiError], bytes] = encode_error) -> None:
        """Sends an error as a whole reply; `encode` gives it the shape of the route's dialect."""
        self.error = error
        # The unread rest of a body must not be parsed as the next request.
        closing = [(b"connection", b"close")] if error.status in (408, 413) else []
        await self.reply(error.status, encode(error), headers=[*error.headers, *closing])

    async def begin_stream(self, media_type: bytes, headers: Headers = ()) -> None:
        """Sends the head of a stream."""
        await self._start(200, [(b"content-type", media_type), (b"cache-control", b"no-cache"),
                                (b"x-accel-buffering", b"no"), *headers])

    async def write(self, data: bytes) -> None:
        await self._write(data, more=True)

    async def end(self) -> None:
        await self._write(b"", more=False)

    def abort(self) -> None:
        """Aborts the connection at once; unsent data is dropped."""
        transport = self.scope.get("extensions", {}).get(CONNECTION)
        if transport is not None:
            transport.abort()

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        named = [*headers, (b"x-request-id", self.id.encode()), (b"x-content-type-options", b"nosniff")]
        await self._send({"type": "http.response.start", "status": status, "headers": named})

    async def _write(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


class ClientGoneError(Exception):
    """The client has closed the connection."""


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isascii() and c.isprintable())[:MAX_ID_CHARS]
