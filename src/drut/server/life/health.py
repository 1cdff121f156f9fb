"""What may be said of the server's health: never more than is known."""

from __future__ import annotations

import time

from drut.engine.async_engine import AsyncEngine
from drut.engine.messages import Stats

PING_S = 1.0  # between two questions to the engine
LATE_S = 10.0  # without an answer: no new traffic, though the step may still end


class Health:
    """`alive` while the server is of use at all, `ready` while new requests make sense. Both answer at once."""

    def __init__(self) -> None:
        self._engine: AsyncEngine | None = None
        self._asked_at: float | None = None  # the question that is not answered yet
        self._answered = False
        self.draining = False
        self.stats: Stats | None = None  # the last answer
        self.questions = 0  # asked so far

    def attach(self, engine: AsyncEngine) -> None:
        """The engine has loaded its model."""
        self._engine = engine

    def alive(self) -> bool:
        """Whether the engine lives, or is still loading."""
        return self._engine is None or self._engine.dead is None

    def ready(self) -> tuple[bool, str]:
        """Whether to send requests here, and why not."""
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
        """How long the engine has owed an answer. It answers between two steps."""
        return 0.0 if self._asked_at is None else time.monotonic() - self._asked_at

    @property
    def unanswered(self) -> int:
        """The number of the question that is not answered yet, 0 if there is none."""
        return 0 if self._asked_at is None else self.questions

    async def ask(self) -> Stats:
        """One question to the engine; EngineDeadError where it ends instead of answering."""
        assert self._engine is not None, "attach the engine first"
        self.questions += 1
        self._asked_at = time.monotonic()
        self.stats = await self._engine.stats()
        self._asked_at, self._answered = None, True
        return self.stats
