"""Has the constraints of requests compiled, by the engine, before these are admitted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from drut.constrain import Constraint
from drut.constrain.kept import Kept
from drut.errors import RequestError
from drut.server.admission import QueueFullError
from drut.server.protocol.errors import ApiError
from drut.server.protocol.structured import Asked

OffLoop = Callable[[Callable[[], Constraint]], Awaitable[Constraint]]
FINE = ""  # no fault


class Engine(Protocol):
    """What is needed of AsyncEngine."""

    heard_at: float

    async def compile(self, constraint: Constraint) -> None: ...


class TooSlowError(RequestError):
    """A constraint is still being compiled when its time is over."""


class Compilers:
    """Takes turns at the engine's thread that compiles. Use in one event loop.

    It remembers how compilations ended, about as long as the engine keeps what came of them. One that the engine has
    dropped all the same is compiled again while its request waits in there.
    """

    def __init__(self, engine: Engine, *, seconds: float, patience_s: float, room: int) -> None:
        """`seconds`: how long a grammar may take; `patience_s`: how long a request may wait for its turn; `room`:
        bytes of the engine's cache."""
        self._engine, self._seconds, self._patience_s = engine, seconds, patience_s
        self._turn = asyncio.Lock()  # released when a compilation has ended
        self._task: asyncio.Task[str] | None = None  # of whose turn it is; it ends though nothing may wait for it
        self._faults: Kept[str] = Kept(room)

    async def check(self, asked: Sequence[Asked], off_loop: OffLoop) -> None:
        """ApiError 400 names the field whose constraint does not compile. QueueFullError if its turn does not come.

        `asked`: the last is what the answer must fit, those before it may be part of it.
        """
        *parts, whole = asked
        try:
            await self._compile(whole.constraint)
        except TooSlowError as error:  # and its parts would have to wait for it
            raise ApiError(400, f"{whole.path}: {error}", param=whole.path) from None
        except RequestError as error:
            for one in parts:
                await self._find_fault(one.path, one.constraint)
            for path, schema in whole.schemas:
                await self._find_fault(path, await off_loop(partial(Constraint.json_schema, schema)))
            raise ApiError(400, f"{whole.path}: {error}", param=whole.path) from None

    async def _find_fault(self, path: str, constraint: Constraint) -> None:
        """ApiError 400 where a part alone is at fault."""
        try:
            await self._compile(constraint)
        except RequestError as error:
            raise ApiError(400, f"{path}: {error}", param=path) from None

    async def _compile(self, constraint: Constraint) -> None:
        fault = self._faults.get(constraint)
        if fault is None:
            fault = await self._ask(constraint)
        if fault != FINE:
            raise RequestError(fault)

    async def _ask(self, constraint: Constraint) -> str:
        """Returns what is wrong with it. TooSlowError where its time is over before that is known."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._turn.acquire()
        except TimeoutError:
            raise QueueFullError("grammars of other requests are compiled first", self._patience_s) from None
        task = self._task = asyncio.create_task(self._find_out(constraint))
        task.add_done_callback(_look_at)
        begun = time.monotonic()
        await asyncio.wait({task}, timeout=self._seconds)
        while not task.done() and self._engine.heard_at < begun:  # it is stopped, which is no fault of the grammar
            await asyncio.wait({task}, timeout=self._seconds)
        if not task.done():
            raise TooSlowError(f"the grammar takes longer than {self._seconds:g} s to compile")
        return task.result()

    async def _find_out(self, constraint: Constraint) -> str:
        """Passes the turn on at its end."""
        try:
            fault = self._faults.get(constraint)  # it may have become known while others had the turn
            if fault is None:
                fault = await self._fault(constraint)
                self._faults.put(constraint, fault)
            return fault
        finally:
            self._turn.release()

    async def _fault(self, constraint: Constraint) -> str:
        try:
            await self._engine.compile(constraint)
        except RequestError as error:
            return str(error)
        return FINE


def _look_at(task: asyncio.Task[str]) -> None:
    """An error that nothing waits for any more is not worth a traceback: the engine has ended."""
    if not task.cancelled():
        task.exception()
