"""Streams a reply: all output since the last write is one write, and comments keep an idle stream alive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType

from drut.server.http.exchange import Headers, HttpExchange
from drut.server.openai.protocol.errors import as_api_error
from drut.server.openai.render.dialect import Dialect
from drut.server.openai.render.wire import Wire
from drut.server.service import SMALL_REPLY, Service
from drut.server.stream.assembler import SCORE_BYTES, Assembler, TextPiece
from drut.server.stream.prepared_request import PreparedRequest
from drut.server.stream.run import RequestRun


async def stream(exchange: HttpExchange, run: RequestRun, job: PreparedRequest, assembler: Assembler, dialect: Dialect,
                 wire: Wire,
                 service: Service, *, headers: Headers) -> None:
    """Writes the reply event by event. An error before the first chunk is raised, so that it gets its own status; a
    later one is an error event that ends the stream."""
    keep_alive_s = service.config.keep_alive_s
    with suppress(TimeoutError):
        await asyncio.wait_for(run.wait(), keep_alive_s)
    if run.error is not None:
        raise run.error
    await exchange.begin_stream(wire.media_type, headers)
    with KeepAlive(run.news, keep_alive_s) as idle:
        while True:
            finished, error = run.finished, run.error
            pieces = assembler.take()
            if sum(weight(piece, job) for piece in pieces) <= SMALL_REPLY:
                data = b"".join(framed(pieces, dialect, wire))
            else:
                data = b""
                async for part in run.while_connected(service.in_parts(framed(pieces, dialect, wire))):
                    await exchange.write(part)
            if error is not None:
                exchange.error = as_api_error(error)
                data += wire.error_frame(exchange.error)
            elif finished:
                data += (b"".join(wire.frame(dialect.usage_event())) if job.include_usage else b"") + wire.end()
            if data or idle.due():
                await exchange.write(data or wire.keep_alive)
                idle.reset()
            if finished:
                return await exchange.end()
            await run.wait()


def framed(pieces: Sequence[TextPiece], dialect: Dialect, wire: Wire) -> Iterator[bytes]:
    """Yields the events of `pieces`, in parts."""
    for piece in pieces:
        for event in dialect.events(piece):
            yield from wire.frame(event)


def weight(piece: TextPiece, job: PreparedRequest) -> int:
    """Returns the estimated bytes of a piece's events."""
    top = max(job.params.logprobs or 0, job.params.prompt_logprobs or 0)
    return len(piece.text) + piece.scored * (1 + top) * SCORE_BYTES


class KeepAlive:
    """Sets `news` when a stream has been idle for some seconds, with one timer for any number of events."""

    def __init__(self, news: asyncio.Event, seconds: float) -> None:
        self._news, self._seconds = news, seconds
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> KeepAlive:
        self._last = self._loop.time() - self._seconds  # due at once: only the head was sent yet
        self._timer = self._loop.call_later(self._seconds, self._check)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._timer.cancel()

    def reset(self) -> None:
        self._last = self._loop.time()

    def due(self) -> bool:
        """Returns whether it is time to send a comment."""
        return self._loop.time() - self._last >= self._seconds

    def _check(self) -> None:
        left = self._last + self._seconds - self._loop.time()
        if left <= 0:
            self._news.set()
        self._timer = self._loop.call_later(left if left > 0 else self._seconds, self._check)
