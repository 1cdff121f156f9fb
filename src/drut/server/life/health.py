"""Liveness and readiness of the server, from regular pings to the engine."""

from __future__ import annotations

import time

from drut.engine.service.async_engine import AsyncEngine
from drut.engine.service.messages import Stats

PING_S = 1.0  # between two pings to the engine
LATE_S = 10.0  # without an answer: not ready for new requests, though the step may still end


class Health:
    """Reports whether the server is alive, and whether it is ready for requests. Neither waits for the engine."""

    def __init__(self) -> None:
        self._engine: AsyncEngine | None = None
        self._pinged_at: float | None = None  # of the ping that is not answered yet
        self._answered = False
        self.draining = False
        self.stats: Stats | None = None  # the latest answer
        self.pings = 0  # sent so far

    def attach(self, engine: AsyncEngine) -> None:
        """Sets the engine, once its model is loaded."""
        self._engine = engine

    def alive(self) -> bool:
        """Returns whether the engine is alive or still loading."""
        return self._engine is None or self._engine.dead is None

    def ready(self) -> tuple[bool, str]:
        """Returns whether the server takes requests, and if not, why."""
        if self._engine is None:
            return False, "the model is loading"
        if self._engine.dead is not None:
            return False, self._engine.dead
        if self.draining:
            return False, "the server is shutting down"
        if not self._answered:
            return False, "the engine has not answered yet"
        silence = self.silence_s
        if silence > LATE_S:
            return False, f"the engine has been silent for {silence:.0f} s"
        return True, "ready"

    @property
    def silence_s(self) -> float:
        """Seconds for which a ping has not been answered. The engine answers between two steps."""
        return 0.0 if self._pinged_at is None else time.monotonic() - self._pinged_at

    @property
    def pending_ping(self) -> int:
        """The number of the ping that is not answered yet, from 1; 0 if there is none."""
        return 0 if self._pinged_at is None else self.pings

    async def ping(self) -> Stats:
        """Asks the engine for its stats. EngineDeadError if it ends instead of answering."""
        assert self._engine is not None, "attach the engine first"
        self.pings += 1
        self._pinged_at = time.monotonic()
        self.stats = await self._engine.stats()
        self._pinged_at, self._answered = None, True
        return self.stats
