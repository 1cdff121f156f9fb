"""Server-sent events: what came since the last write is one write, and silence is filled with comments."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType

from drut.server.exchange import Exchange, Headers
from drut.server.job import Job
from drut.server.pieces import Assembler
from drut.server.protocol.errors import as_api_error, encode_error
from drut.server.render.dialect import Dialect
from drut.server.run import Run

COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


async def stream(exchange: Exchange, run: Run, job: Job, assembler: Assembler, dialect: Dialect, *,
                 keep_alive_s: float, headers: Headers) -> None:
    """The answer, event by event. An error before the first chunk is raised, so that it still has its own status;
    a later one is an event, after which the stream ends without [DONE]."""
    with suppress(TimeoutError):
        await asyncio.wait_for(run.wait(), keep_alive_s)
    if run.error is not None:
        raise run.error
    await exchange.begin_events(headers)
    with Silence(run.news, keep_alive_s) as silence:
        while True:
            finished, error = run.finished, run.error
            data = b"".join(b"data: %b\n\n" % event for piece in assembler.take() for event in dialect.events(piece))
            if error is not None:
                data += b"data: %b\n\n" % encode_error(as_api_error(error))
            elif finished:
                data += (b"data: %b\n\n" % dialect.usage_event() if job.include_usage else b"") + DONE
            if data or silence.broken():
                await exchange.write(data or COMMENT)
                silence.reset()
            if finished:
                return await exchange.end()
            await run.wait()


class Silence:
    """Sets `news` when nothing was said for some seconds. One timer a stream, whatever the number of events."""

    def __init__(self, news: asyncio.Event, seconds: float) -> None:
        self._news, self._seconds = news, seconds
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Silence:
        self._last = self._loop.time() - self._seconds  # the head alone was no word yet
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._timer.cancel()

    def reset(self) -> None:
        self._last = self._loop.time()

    def broken(self) -> bool:
        """Whether it is time to say something."""
        return self._loop.time() - self._last >= self._seconds

    def _look(self) -> None:
        left = self._last + self._seconds - self._loop.time()
        if left <= 0:
            self._news.set()
        self._timer = self._loop.call_later(left if left > 0 else self._seconds, self._look)
