"""A request that is being computed: the handles of its prompts, and its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from types import TracebackType

from drut.engine.request.output import Chunk
from drut.server.admission import AdmissionControl, QueuedRequest, RequestHandle, RequestRecord
from drut.server.http.exchange import ClientGoneError, HttpExchange
from drut.server.stream.assembler import Assembler


class RequestRun:
    """The prompts of one request under way, one handle each. Use it in the event loop.

    Chunks go to the assembler as they come, and `news` is set when there is something to write. The end of the `with`
    block, or a client that disconnects, cancels all handles at once. Backpressure: a client with more than `backlog`
    unread bytes is disconnected. `error` is the first error of any handle.
    """

    def __init__(self, assembler: Assembler, exchange: HttpExchange, *, backlog: int) -> None:
        self._assembler, self._exchange, self._backlog = assembler, exchange, backlog
        self.news, self._over = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None
        self.gone = False
        self._tickets: list[RequestHandle] = []
        self._open = 0

    async def __aenter__(self) -> RequestRun:
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        self._cancel()
        self._watcher.cancel()
        await asyncio.gather(self._watcher, return_exceptions=True)

    def submit(self, admission: AdmissionControl, ask: QueuedRequest) -> RequestRecord:
        """Submits the next prompt and returns its record. Raises what `admission.submit` raises."""
        self._open += 1
        ticket = admission.submit(ask, partial(self._push, len(self._tickets)), self._end)
        self._tickets.append(ticket)
        return ticket.record

    @property
    def finished(self) -> bool:
        return self._open == 0 or self.error is not None

    async def wait(self) -> None:
        """Waits until there is something to write. ClientGoneError if the client has disconnected."""
        await self.news.wait()
        self.news.clear()
        if self.gone:
            raise ClientGoneError

    async def wait_for_end(self) -> None:
        """Waits until all handles have ended. Raises the first error of any of them, or ClientGoneError."""
        await self._over.wait()
        if self.gone:
            raise ClientGoneError
        if self.error is not None:
            raise self.error

    async def while_connected(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yields `parts` as they are made. ClientGoneError once the client has disconnected."""
        async for part in parts:
            if self.gone:
                raise ClientGoneError
            yield part

    def _push(self, prompt: int, chunk: Chunk) -> None:
        try:
            news = self._assembler.push(prompt, chunk)
        except Exception as error:  # it must not leave the callback: messages to other requests are delivered next
            self.error = self.error or error
            return self._cancel()
        if news:
            self.news.set()
        if self._exchange.started and self._assembler.backlog > self._backlog:
            self._leave()

    def _end(self, error: Exception | None) -> None:
        self.error = self.error or error
        self._open -= 1
        self.news.set()
        if self.finished:
            self._over.set()

    async def _watch(self) -> None:
        await self._exchange.gone()
        self._leave()

    def _leave(self) -> None:
        self.gone = True
        self._cancel()
        self._exchange.abort()  # wakes a write that waits for the client
        self.news.set()
        self._over.set()

    def _cancel(self) -> None:
        for ticket in self._tickets:
            ticket.cancel()
