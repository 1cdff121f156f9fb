"""From a turn to a record: encodes the request, enforces its timeout, and classifies its failures."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from drut.bench.address import Address, shown, tls_context
from drut.bench.load.answer import StreamedAnswer
from drut.bench.load.http import ClientConnection, ConnectionPool
from drut.bench.load.record import Failure
from drut.bench.work import ConversationTurn, Message
from drut.errors import RequestError

_OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


class Target(msgspec.Struct, frozen=True):
    """A server and how requests are sent to it. `endpoint`: the path of requests, added to the URL's own (`Address`).
    `body` is merged into every request; `timeout_s` is the limit of a request, counted from sending. `exact`: fields
    that make a server without ignore_eos and min_tokens generate exactly `max_tokens` tokens."""

    url: str
    model: str
    endpoint: str | None = None
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}
    exact: dict[str, Any] | None = None
    stream: bool = True
    continuous_usage: bool = False
    timeout_s: float = 600.0
    verify_tls: bool = True
    ca_file: str | None = None

    def __post_init__(self) -> None:
        _ = self.address
        for name, value in self.headers.items():
            if not _TOKEN.fullmatch(name) or not (value.isascii() and value.replace("\t", " ").isprintable()):
                raise RequestError(f"{name!r} is not a valid header")
            if name.lower() in _OWN_HEADERS:
                raise RequestError(f"the header {name} is set by the client itself")
        if not self.timeout_s > 0:
            raise RequestError(f"the timeout must be more than 0 s, not {self.timeout_s}")

    def pool(self) -> ConnectionPool:
        """Returns a pool of connections to the server. Raises RequestError if the certificates cannot be read."""
        parts = urlsplit(self.url)
        tls = None
        if parts.scheme == "https":
            tls = tls_context(self.verify_tls, self.ca_file)
        return ConnectionPool(str(parts.hostname), parts.port or (443 if tls else 80), tls)

    @property
    def address(self) -> Address:
        """Returns the URLs of the server's routes."""
        return Address(self.url, self.endpoint)

    def path(self, chat: bool) -> str:
        """Returns the path of chats or completions. Raises RequestError if the URL fixes the other route."""
        return self.address.path("/v1/chat/completions" if chat else "/v1/completions")

    def asked(self, turn: ConversationTurn, history: Sequence[Message] = ()) -> dict[str, Any]:
        """Returns the body of a request, without the fields about streaming."""
        body = {"model": self.model, "max_tokens": turn.max_tokens, **self.body, **turn.body}
        if turn.exact:
            body |= {"min_tokens": turn.max_tokens, "ignore_eos": True} if self.exact is None else self.exact
        if turn.prompt is None:
            return {**body, "messages": [*history, *turn.messages]}
        return {**body, "prompt": turn.prompt}

    def head(self, chat: bool) -> bytes:
        """Returns the head of the request up to the length of its body."""
        lines = [f"POST {self.path(chat)} HTTP/1.1", f"Host: {urlsplit(self.url).netloc}",
                 "Content-Type: application/json",
                 f"Accept: {'text/event-stream' if self.stream else 'application/json'}",
                 *(f"{name}: {value}" for name, value in self.headers.items()), "Content-Length: "]
        return "\r\n".join(lines).encode()


class Client:
    """Sends turns to a target, each immediately."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.stream = target.stream
        self._pool = target.pool()
        self._loop = asyncio.get_running_loop()
        self._heads: dict[bool, bytes] = {}
        self._encoder = msgspec.json.Encoder()
        self._common: dict[str, Any] = {"stream": target.stream}
        if target.stream:
            options = {"include_usage": True}
            if target.continuous_usage:
                options["continuous_usage_stats"] = True
            self._common["stream_options"] = options

    async def prepare(self) -> None:
        """Checks that the server accepts connections. Raises DrutError."""
        await self._pool.resolve()

    def close(self) -> None:
        self._pool.close()

    def encode(self, turn: ConversationTurn, history: list[Message]) -> bytes:
        """Encodes the request, head and body."""
        data = self._encoder.encode({**self._common, **self._target.asked(turn, history)})
        chat = turn.prompt is None
        if chat not in self._heads:
            self._heads[chat] = self._target.head(chat)
        return b"%b%d\r\n\r\n%b" % (self._heads[chat], len(data), data)

    async def ask(self, payload: bytes, answer: StreamedAnswer) -> None:
        """Sends the request and waits for its end; `answer.record` holds the result. Cancellation ends the connection
        and makes the record `unfinished`."""
        await self._ask(payload, answer)
        if answer.record.failure == "http" and answer.record.status in (404, 405):  # perhaps only the path is wrong
            path = payload[: payload.index(b" ", 5)].decode()
            answer.record.detail = f"{shown(path)}: {answer.record.detail}"

    async def _ask(self, payload: bytes, answer: StreamedAnswer) -> None:
        connection = self._pool.reuse()
        used = connection is not None
        if connection is None:
            connection = await self._connect(answer)
            if connection is None:
                return
        while not await self._exchange(connection, payload, answer):
            if answer.record.failure is not None:
                return
            if not used:
                self._failed(answer, "cut", "the connection ended without a response")
                return
            used = False
            connection = await self._connect(answer)
            if connection is None:
                return

    async def _exchange(self, connection: ClientConnection, payload: bytes, answer: StreamedAnswer) -> bool:
        over = connection.send(payload, answer)
        timer = self._loop.call_later(self._target.timeout_s, self._expire, connection, answer)
        try:
            return await over
        except asyncio.CancelledError:
            self._failed(answer, "unfinished", "still running when the run ended")
            connection.leave()
            raise
        finally:
            timer.cancel()

    def _expire(self, connection: ClientConnection, answer: StreamedAnswer) -> None:
        answer.fail("timeout", f"no complete response within {self._target.timeout_s:g} s")
        connection.abort()

    async def _connect(self, answer: StreamedAnswer) -> ClientConnection | None:
        start = time.monotonic()
        try:
            return await self._pool.connect()
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no connection in {time.monotonic() - start:.0f} s"
            self._failed(answer, "connect", why)
            return None
        except asyncio.CancelledError:
            self._failed(answer, "unfinished", "still connecting when the run ended")
            raise
        finally:
            answer.record.connect_s += time.monotonic() - start

    @staticmethod
    def _failed(answer: StreamedAnswer, kind: Failure, detail: str) -> None:
        answer.fail(kind, detail)
        answer.record.ended = time.monotonic()
