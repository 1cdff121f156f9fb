"""uvicorn's HTTP protocol with limits on a request's head and on how long a client may stop reading."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from drut.server.config import ServerConfig
from drut.server.http.exchange import CONNECTION
from drut.server.http.failures import FailureLog
from drut.server.http.gate import ConnectionGate
from drut.server.openai.protocol.errors import ApiError

PER_HEADER = 4  # bytes around a name and a value
CLOSE_GRACE_S = 1.0  # for a client to read its error: closing at once could reset the connection before that


class HeadTooLargeError(ValueError):
    """The head of a request has more bytes or headers than allowed."""


class HttpConnection(HttpToolsProtocol):
    """One client connection. An invalid head ends it, with an error in the shape of all others.

    Every method runs in the event loop. Two timers abort the transport: `_timer`, if a head (or, after a rejection, the
    client's close) does not arrive in time; `_stall`, as backpressure, if the client stops reading.
    """

    def __init__(self, *args: Any, settings: ServerConfig, gate: ConnectionGate, failures: FailureLog,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_bytes, self._max_headers = settings.max_header_kb * 1024, settings.max_headers
        self._head_timeout_s, self._write_timeout_s = settings.head_timeout_s, settings.write_timeout_s
        self._head_bytes = 0  # of the head that is being read
        self._unfinished = 0  # bytes received that did not complete it
        self._in_head, self._heads = True, 0
        self._refused: ApiError | None = None
        self._gate, self._inside, self._address, self._failures = gate, False, "", failures
        self._rejected = False  # the error is written; further data is ignored
        self._timer: asyncio.TimerHandle | None = None  # for the head
        self._stall: asyncio.TimerHandle | None = None  # for a client that reads nothing

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = str((transport.get_extra_info("peername") or ("",))[0])
        why_not = self._gate.enter(self._address)
        self._inside = not why_not
        if self._inside:
            self._timer = self.loop.call_later(self._head_timeout_s, transport.abort)
        elif self._gate.closing >= self._gate.max_closing:
            transport.abort()
        else:
            self._refused = ApiError(503, why_not, code="too_many_connections", retry_after_s=1)
            self._reject_and_close(self._refused)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._inside:
            self._gate.leave(self._address)
        if self._rejected:
            self._gate.closing -= 1
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self._rejected or self.transport.is_closing():
            return
        reading, heads = self._in_head, self._heads
        super().data_received(data)
        if reading and heads == self._heads:  # the parser calls back only at the end of a value
            self._unfinished += len(data)
            if self._unfinished > self._max_bytes and not self.transport.is_closing():
                self._refuse()
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self.scope["extensions"] = {CONNECTION: self.transport}  # type: ignore[dict-item]
        if self._timer is None:
            self._timer = self.loop.call_later(self._head_timeout_s, self.transport.abort)

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + PER_HEADER)
        super().on_header(name, value)
        if len(self.headers) > self._max_headers:
            self._refuse()
            raise HeadTooLargeError

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._in_head, self._unfinished = False, 0
        self._heads += 1
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_write_stall(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    def _watch_write_stall(self, buffered: int) -> None:
        """Schedules a check that aborts the connection unless fewer than `buffered` bytes are unsent by then."""
        self._stall = self.loop.call_later(self._write_timeout_s, self._check_write_stall, buffered)

    def _check_write_stall(self, before: int) -> None:
        buffered = self.transport.get_write_buffer_size()
        if buffered >= before:
            return self.transport.abort()
        self._watch_write_stall(buffered)

    def send_400_response(self, msg: str) -> None:
        self._reject_and_close(self._refused or ApiError(400, "this is not a valid HTTP request", code="invalid_http"))

    def _reject_and_close(self, error: ApiError) -> None:
        """Writes `error`, then waits up to CLOSE_GRACE_S for the client to close before it aborts the connection."""
        if self._rejected:
            return
        self._rejected = True
        self._failures.failed(error)
        self._gate.closing += 1
        self._stop_timer()
        body = msgspec.json.encode(error.detail)
        head = b"".join(b"%b: %b\r\n" % header for header in error.headers)
        self.transport.write(b"HTTP/1.1 %d Refused\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b"
                             b"connection: close\r\n\r\n%b" % (error.status, len(body), head, body))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(CLOSE_GRACE_S, self.transport.abort)

    def _count(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > self._max_bytes:
            self._refuse()
            raise HeadTooLargeError

    def _refuse(self) -> None:
        self._refused = ApiError(431, f"the request's line and headers are more than {self._max_bytes} bytes or "
                                      f"{self._max_headers} headers (--max-header-kb, --max-headers)",
                                 code="headers_too_large")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
