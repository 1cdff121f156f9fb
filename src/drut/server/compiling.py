"""Compiles the constraints of requests before these are admitted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from drut.constrain import Constraint
from drut.constrain.compiler import Grammars
from drut.errors import RequestError
from drut.server.admission import QueueFullError
from drut.server.protocol.errors import ApiError
from drut.server.protocol.structured import Asked

Run = Callable[[Callable[[], Constraint]], Awaitable[Constraint]]


class Compilers:
    """Takes turns at the thread that compiles, so that no other thread waits for a grammar. Use in one event loop."""

    def __init__(self, patience_s: float) -> None:
        """`patience_s`: how long a request may wait for its turn."""
        self._turn, self._patience_s = asyncio.Lock(), patience_s  # released when a compilation has ended

    async def check(self, grammars: Grammars, asked: Sequence[Asked], off_loop: Run) -> None:
        """ApiError 400 names the field whose constraint does not compile. QueueFullError if its turn does not come."""
        for one in asked:
            try:
                await self._compile(grammars, one.constraint)
            except RequestError as error:
                await self._find_fault(grammars, one, off_loop)
                raise ApiError(400, f"{one.path}: {error}", param=one.path) from None

    async def _find_fault(self, grammars: Grammars, asked: Asked, off_loop: Run) -> None:
        """ApiError 400 where one of its schemas alone is at fault."""
        for path, schema in asked.schemas:
            try:
                await self._compile(grammars, await off_loop(partial(Constraint.json_schema, schema)))
            except RequestError as error:
                raise ApiError(400, f"{path}: {error}", param=path) from None

    async def _compile(self, grammars: Grammars, constraint: Constraint) -> None:
        if not grammars.knows(constraint):
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._turn.acquire()
            except TimeoutError:
                raise QueueFullError("grammars of other requests are compiled first", self._patience_s) from None
            compiling = grammars.compile(constraint)
            with suppress(TimeoutError):
                async with asyncio.timeout(compiling.seconds):
                    await self._release_after(compiling.future).wait()
        else:
            compiling = grammars.compile(constraint)
        compiling.result()  # it waits no more: the future has ended, or its time is over

    def _release_after(self, future: Future[Any]) -> asyncio.Event:
        """Passes the turn on when `future` ends, though nothing waits for it any more. Sets the event it returns."""
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def end() -> None:
            ended.set()
            self._turn.release()

        def report(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end)

        future.add_done_callback(report)
        return ended
