"""Lets the engine compile the constraints of requests before their admission."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from drut.constrain import Constraint
from drut.constrain.kept import ConstraintCache
from drut.errors import RequestError
from drut.server.admission import QueueFullError
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.structured import RequestedFormat

OffLoop = Callable[[Callable[[], Constraint]], Awaitable[Constraint]]
NO_FAULT = ""


class GrammarEngine(Protocol):
    """The part of AsyncEngine that compiles."""

    heard_at: float

    async def compile(self, constraint: Constraint) -> None: ...


class TooSlowError(RequestError):
    """A constraint takes longer to compile than allowed."""


class Compilers:
    """Compiles constraints one at a time, in the engine's compile thread. Use it in one event loop.

    It caches the results of compilations, about as long as the engine caches the grammars. A grammar that the engine
    has evicted nevertheless is compiled again while its request waits in the engine.
    """

    def __init__(self, engine: GrammarEngine, *, seconds: float, patience_s: float, room: int) -> None:
        """`seconds`: maximum time of a compilation; `patience_s`: maximum wait of a request for its turn; `room`: bytes
        of the engine's cache."""
        self._engine, self._seconds, self._patience_s = engine, seconds, patience_s
        self._turn = asyncio.Lock()  # released when a compilation has ended, not when its request stops waiting
        self._task: asyncio.Task[str] | None = None  # the reference keeps a task alive that no request waits for
        self._faults: ConstraintCache[str] = ConstraintCache(room)

    async def check(self, asked: Sequence[RequestedFormat], off_loop: OffLoop) -> None:
        """Compiles the constraint of a request. ApiError 400 names the field that does not compile; QueueFullError if
        its turn does not come in time.

        `asked`: the last is the constraint of the output; those before it may be parts of it.
        """
        *parts, whole = asked
        try:
            await self._compile(whole.constraint)
        except TooSlowError as error:  # its parts are not tested: they would have to wait for it
            raise ApiError(400, f"{whole.path}: {error}", param=whole.path) from None
        except RequestError as error:
            for one in parts:
                await self._find_fault(one.path, one.constraint)
            for path, schema in whole.schemas:
                await self._find_fault(path, await off_loop(partial(Constraint.json_schema, schema)))
            raise ApiError(400, f"{whole.path}: {error}", param=whole.path) from None

    async def _find_fault(self, path: str, constraint: Constraint) -> None:
        """Raises ApiError 400 if this part alone does not compile."""
        try:
            await self._compile(constraint)
        except RequestError as error:
            raise ApiError(400, f"{path}: {error}", param=path) from None

    async def _compile(self, constraint: Constraint) -> None:
        fault = self._faults.get(constraint)
        if fault is None:
            fault = await self._ask(constraint)
        if fault != NO_FAULT:
            raise RequestError(fault)

    async def _ask(self, constraint: Constraint) -> str:
        """Returns the fault of a constraint, or NO_FAULT. TooSlowError if it takes too long."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._turn.acquire()
        except TimeoutError:
            raise QueueFullError("grammars of other requests are compiled first", self._patience_s) from None
        task = self._task = asyncio.create_task(self._find_out(constraint))
        task.add_done_callback(_look_at)
        begun = time.monotonic()
        await asyncio.wait({task}, timeout=self._seconds)
        while not task.done() and self._engine.heard_at < begun:  # the engine is stopped: no fault of the grammar
            await asyncio.wait({task}, timeout=self._seconds)
        if not task.done():
            raise TooSlowError(f"the grammar takes longer than {self._seconds:g} s to compile")
        return task.result()

    async def _find_out(self, constraint: Constraint) -> str:
        """Compiles a constraint and releases the turn."""
        try:
            fault = self._faults.get(constraint)  # it may have been compiled while this request waited for its turn
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
        return NO_FAULT


def _look_at(task: asyncio.Task[str]) -> None:
    """Retrieves the exception of a task that no request waits for, else asyncio would log it: the engine has ended."""
    if not task.cancelled():
        task.exception()
