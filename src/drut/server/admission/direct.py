"""Requests go to the engine at once, up to a number of open ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from drut.engine.async_engine import AsyncEngine
from drut.engine.output import Chunk
from drut.engine.params import SamplingParams
from drut.errors import DrutError


class QueueFullError(DrutError):
    """No room in the queue. `retry_after_s`: seconds until there may be some."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("the queue is full")
        self.retry_after_s = retry_after_s


class DrainingError(DrutError):
    """The server takes no new requests."""


class DeadlineError(DrutError):
    """A request was not finished in the time it gave itself."""


@dataclass(frozen=True)
class AdmissionLimits:
    max_queue: int = 256


@dataclass(frozen=True)
class Ask:
    """One prompt for the engine. `key` names who asks; `deadline_s` counts from `arrived` (monotonic; None: now)."""

    prompt: list[int]
    params: SamplingParams
    key: str = ""
    priority: int = 0
    salt: str = ""
    deadline_s: float | None = None
    id: str = ""
    arrived: float | None = None


class Ticket:
    """The chunks of one ask, in the order they come."""

    def __init__(self, admission: Admission, ask: Ask) -> None:
        self.arrived = time.monotonic() if ask.arrived is None else ask.arrived
        self._admission, self._deadline_s = admission, ask.deadline_s
        self._stream = admission.engine.generate(ask.prompt, ask.params, request_id=ask.id or None,
                                                 priority=ask.priority, salt=ask.salt)
        self._open = True

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self._chunks()

    async def _chunks(self) -> AsyncIterator[Chunk]:
        left = None if self._deadline_s is None else self.arrived + self._deadline_s - time.monotonic()
        try:
            async with asyncio.timeout(left):
                async for chunk in self._stream:
                    yield chunk
                    if not self._open:
                        break
        except TimeoutError:
            raise DeadlineError(f"it was not finished within {self._deadline_s:g} s") from None
        finally:
            self.cancel()
            await self._stream.aclose()

    def cancel(self) -> None:
        """Ends it wherever it is. Idempotent."""
        if self._open:
            self._open = False
            self._admission.open -= 1


class Admission:
    def __init__(self, engine: AsyncEngine, limits: AdmissionLimits) -> None:
        self.engine, self._limits = engine, limits
        self.open = 0

    def submit(self, ask: Ask) -> Ticket:
        """QueueFullError where too many are open."""
        if self.open >= self._limits.max_queue:
            raise QueueFullError(1.0)
        self.open += 1
        return Ticket(self, ask)
