"""The inbox of an engine: messages from any thread. The loop reads them between steps; Compile bypasses the loop."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from drut.engine.service.grammar_desk import GrammarDesk
from drut.engine.service.messages import Compile, ToEngine, ToLoop


class Inbox:
    """A queue of messages to the engine loop. Any thread may put; the loop's thread receives."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[ToLoop] = queue.SimpleQueue()
        self._desk: GrammarDesk | None = None

    def compile_with(self, desk: GrammarDesk) -> None:
        """Sets where Compile messages go. Call it before the Ready message is sent."""
        self._desk = desk

    def put(self, message: ToEngine) -> None:
        """Adds a message; a Compile message is handled at once."""
        if not isinstance(message, Compile):
            self._queue.put(message)
        elif self._desk is not None:
            self._desk.take(message)

    def receive(self, wait: bool) -> Iterator[ToLoop]:
        """Yields the messages in the queue; waits for the first one if `wait`."""
        if wait:
            yield self._queue.get()
        while not self._queue.empty():
            yield self._queue.get()
