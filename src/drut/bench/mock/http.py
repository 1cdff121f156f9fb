"""HTTP/1.1 on one connection, with limits for everything that a client can send."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from http import HTTPStatus
from typing import NamedTuple, Protocol, cast

import httptools

from drut.bench.mock.service import MockService, error_body

MAX_HEADER_BYTES = 1 << 16
MAX_BODY_BYTES = 1 << 26


class MockRequest(NamedTuple):
    """A complete request."""

    method: str
    path: str
    body: bytes
    keep_alive: bool


class MockHandler(Protocol):
    """Answers the requests of all connections."""

    connect_s: float  # seconds for which a new connection is not read

    def handle(self, connection: MockConnection, request: MockRequest) -> MockService | None:
        """Answers a request at once, or returns the service that will answer it."""

    def resume(self, service: MockService) -> None:
        """Continues a service whose connection takes data again."""


class MockConnection(asyncio.Protocol):
    """Reads requests and answers them one after the other."""

    def __init__(self, handler: MockHandler) -> None:
        self.paused = False
        self._handler = handler
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[MockRequest] = deque()
        self._request: MockRequest | None = None  # the request in progress
        self._service: MockService | None = None
        self._headed = False
        self._received = 0  # bytes since the previous request
        self._held: list[bytes] | None = None  # data that arrived before the connection is read
        self._begin()

    def _begin(self) -> None:
        self._url, self._body_bytes, self._in_body = b"", 0, False
        self._body: list[bytes] = []

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._handler.connect_s:
            self._held = []
            asyncio.get_running_loop().call_later(self._handler.connect_s, self._read_held)

    def data_received(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
            return self._transport.pause_reading()
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            return self._refuse(400, f"not a request of HTTP/1.1: {error}")
        if not self._in_body and self._received > MAX_HEADER_BYTES:  # the parser itself would buffer any amount
            self._refuse(431, "headers are too large")

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.clear()
        if self._service:
            self._service.close("gone")

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self._service and not self._service.dead:
            self._handler.resume(self._service)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > MAX_BODY_BYTES:
            return self._refuse(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._transport.is_closing():
            return
        path = self._url.split(b"?", 1)[0].decode("latin-1")
        request = MockRequest(self._parser.get_method().decode(), path, b"".join(self._body),
                              self._parser.should_keep_alive())
        self._in_body, self._received = False, 0
        self._waiting.append(request)
        if self._request is None:
            self._serve_next()
        else:
            self._transport.pause_reading()  # no further data until the response is complete

    # Methods for services.

    def send_answer(self, data: bytes) -> None:
        """Sends a part of a streamed response; the first call sends the head, too."""
        if not self._headed:
            self._headed = True
            data = _HEAD + data
        self._transport.write(data)

    def end_answer(self) -> None:
        """Completes the streamed response."""
        self._done()

    def send_whole(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Sends a complete response."""
        head = (f"HTTP/1.1 {status} {_phrase(status)}\r\ncontent-type: {content_type}\r\n"
                f"content-length: {len(body)}\r\n\r\n")
        self._transport.write(head.encode() + body)
        self._done()

    def cut(self) -> None:
        """Resets the connection."""
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _done(self) -> None:
        keep = self._request is not None and self._request.keep_alive
        self._request = self._service = None
        self._headed = False
        if not keep:
            self._transport.close()
        elif self._waiting:
            asyncio.get_running_loop().call_soon(self._serve_next)

    def _serve_next(self) -> None:
        if self._request is None and self._waiting and not self._transport.is_closing():
            self._request = self._waiting.popleft()
            if not self._waiting:
                self._read_on()
            service = self._handler.handle(self, self._request)
            if service and not service.dead:
                self._service = service

    def _read_held(self) -> None:
        held, self._held = self._held or [], None
        self._read_on()
        for data in held:
            self.data_received(data)

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _refuse(self, status: int, message: str) -> None:
        if self._service:
            self._service.close("gone")
        self._request = None  # closes the connection
        if self._transport.is_closing():
            return
        self.send_whole(status, error_body(message, status))


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"


_HEAD = (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
         b"transfer-encoding: chunked\r\n\r\n")
