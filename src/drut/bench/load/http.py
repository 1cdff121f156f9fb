"""HTTP/1.1 for measuring: each read has one time stamp, taken before parsing.

An exchange is a request and its response on one connection. A connection is reused if the server keeps it open. A
connection that the server closed while it was idle may look open: if it ends before the first byte of a response, the
request is sent once more, on a new connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import cast

import httptools

from drut.bench.load.answer import StreamedAnswer
from drut.errors import DrutError

MAX_HEAD = 64 << 10  # bytes of a response's head, and of trailers
CONNECT_S = 10.0

_now = time.monotonic


class ClientConnection(asyncio.Protocol):
    """A connection and its current exchange."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._loop = pool.loop
        self._parser = httptools.HttpResponseParser(self)
        self._answer: StreamedAnswer | None = None
        self._over: asyncio.Future[bool] | None = None  # True: a complete response; False: no byte of a response
        self._arrived = 0.0
        self._got = False  # a byte arrived since the request was sent
        self._head = 0  # bytes of the head, or of trailers, since the last byte of a body
        self._in_body = False
        self._framed = False
        self._type = b""
        self._queue_ms: bytes | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, payload: bytes, answer: StreamedAnswer) -> asyncio.Future[bool]:
        """Sends a request. The future becomes True when the exchange has ended, with or without success (see
        `answer.record`), and False if the connection ended before any byte arrived."""
        self._answer = answer
        self._over = self._loop.create_future()
        self._head, self._got, self._in_body = 0, False, False
        if answer.record.sent is None:  # a second attempt is due to the closed connection, not to a late client
            answer.record.sent = _now()
        self._transport.write(payload)
        return self._over

    def abort(self) -> None:
        """Ends the connection at once."""
        self.closed = True
        self._transport.abort()

    def leave(self) -> None:
        """Ends the connection at once, without notice to the current `StreamedAnswer`."""
        self._answer = self._over = None
        self.abort()

    def data_received(self, data: bytes) -> None:
        self._arrived = _now()
        if self._answer is None:  # there is no request
            self.abort()
            return
        self._got = True
        self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"not HTTP/1.1: {error}")
            return
        if self._head > MAX_HEAD:
            part = "end" if self._in_body else "head"
            self._fail(f"the {part} of the response is longer than {MAX_HEAD} bytes")

    def eof_received(self) -> None:
        return None  # the transport closes and calls `connection_lost`

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._pool.forget(self)
        answer = self._answer
        if answer is None:
            return
        if not self._got:
            self._finish(False)
            return
        if not self._in_body or (self._framed and not answer.complete):
            answer.fail("cut", f"the connection ended inside the response{f': {exc}' if exc else ''}")
        answer.end(_now())
        self._finish(True)

    # Callbacks of the parser. It would take an exception for its own: none may leave a callback.

    def on_message_begin(self) -> None:
        self._framed, self._type, self._queue_ms = False, b"", None
        if self._answer is None:
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-type":
            self._type = value
        elif name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif name == b"x-queue-time":
            self._queue_ms = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._answer is not None and status >= 200:
            self._in_body = True
            self._answer.head(status, self._type, self._queue_ms)

    def on_body(self, data: bytes) -> None:
        self._head = 0
        if self._answer is not None and not self._answer.body(data, self._arrived):
            self._give_up()

    def on_message_complete(self) -> None:
        if not self._in_body or self._answer is None:  # 100 Continue and similar
            return
        answer, alive = self._answer, self._parser.should_keep_alive()
        answer.end(self._arrived)
        self._finish(True)
        if alive and not self.closed:
            self._pool.take_back(self)
        else:
            self.abort()

    def _fail(self, detail: str) -> None:
        if self._answer is not None:
            self._answer.fail("malformed", detail)
            self._give_up()

    def _give_up(self) -> None:
        """Gives up the response, and with it the connection."""
        self._finish(True)
        self.abort()

    def _finish(self, answered: bool) -> None:
        over, self._over, answer, self._answer = self._over, None, self._answer, None
        if answer is not None:
            answer.record.ended = _now() if answer.record.failure is not None else self._arrived
        if over is not None and not over.done():
            over.set_result(answered)


class ConnectionPool:
    """Connections to one server. The most recently used one is reused first."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self._name, self._host, self._port, self._tls = host, host, port, tls
        self._idle: list[ClientConnection] = []

    async def resolve(self) -> None:
        """Finds an address that accepts a connection, and keeps both. Raises DrutError if there is none."""
        last: Exception | None = None
        try:
            found = await self.loop.getaddrinfo(self._name, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise DrutError(f"cannot find the host {self._name}: {error.strerror or error}") from error
        for *_, address in found:
            self._host = str(address[0])
            try:
                self._idle.append(await self.connect())
                return
            except (OSError, TimeoutError) as error:
                last = error
        why = "no response in time" if isinstance(last, TimeoutError) else str(last)
        raise DrutError(f"cannot connect to {self._name}:{self._port}: {why}")

    def reuse(self) -> ClientConnection | None:
        """Returns an idle connection, or None."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    async def connect(self) -> ClientConnection:
        """Opens a new connection. Raises OSError or TimeoutError."""
        async with asyncio.timeout(CONNECT_S):
            _, connection = await self.loop.create_connection(
                lambda: ClientConnection(self), self._host, self._port, ssl=self._tls,
                server_hostname=self._name if self._tls else None)
            return connection

    def take_back(self, connection: ClientConnection) -> None:
        self._idle.append(connection)

    def forget(self, connection: ClientConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()
