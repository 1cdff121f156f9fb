"""The tickets of one request under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from drut.server.admission import Ticket
from drut.server.exchange import ClientGoneError, Exchange
from drut.server.pieces import Assembler


class Run:
    """Chunks go to the assembler as they come, and `news` tells that there is something to say.

    Leaving the `with` block, or the client's leaving, ends all tickets at once. A client that lets more than `backlog`
    bytes wait is cut off. `error` is the first of any ticket's.
    """

    def __init__(self, tickets: Sequence[Ticket], assembler: Assembler, exchange: Exchange, *, backlog: int) -> None:
        self._tickets, self._assembler, self._exchange, self._backlog = tickets, assembler, exchange, backlog
        self.news = asyncio.Event()
        self.error: Exception | None = None
        self.gone = False
        self._open = len(tickets)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Run:
        self._tasks = [asyncio.create_task(self._pump(i, t)) for i, t in enumerate(self._tickets)]
        self._tasks.append(asyncio.create_task(self._watch()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        self._cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def finished(self) -> bool:
        return self._open == 0 or self.error is not None

    async def wait(self) -> None:
        """Until there is something new. ClientGoneError where nobody is there to be told."""
        await self.news.wait()
        self.news.clear()
        if self.gone:
            raise ClientGoneError

    async def while_there(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """`parts` as they are made. ClientGoneError once nobody is there to take them."""
        async for part in parts:
            if self.gone:
                raise ClientGoneError
            yield part

    async def _pump(self, prompt: int, ticket: Ticket) -> None:
        try:
            async for chunk in ticket:
                news = self._assembler.push(prompt, chunk)
                if self._exchange.started and self._assembler.backlog > self._backlog:
                    self._leave()
                if news:
                    self.news.set()
        except Exception as error:
            self.error = self.error or error
        finally:
            self._open -= 1
            self.news.set()

    async def _watch(self) -> None:
        await self._exchange.gone()
        self._leave()

    def _leave(self) -> None:
        self.gone = True
        self._cancel()
        self._exchange.abort()  # wakes a write that waits for the reader
        self.news.set()

    def _cancel(self) -> None:
        for ticket in self._tickets:
            ticket.cancel()
