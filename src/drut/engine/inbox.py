"""Messages to an engine, from any thread. Its loop takes them between two steps; a grammar waits for none."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from drut.engine.grammar_desk import GrammarDesk
from drut.engine.messages import Compile, ToEngine, ToLoop


class Inbox:
    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[ToLoop] = queue.SimpleQueue()
        self._desk: GrammarDesk | None = None

    def compile_with(self, desk: GrammarDesk) -> None:
        """From now on grammars are compiled. To be called before the engine says that it is ready."""
        self._desk = desk

    def put(self, message: ToEngine) -> None:
        if not isinstance(message, Compile):
            self._queue.put(message)
        elif self._desk is not None:
            self._desk.take(message)

    def receive(self, wait: bool) -> Iterator[ToLoop]:
        """What has come; the first of it is waited for if `wait`."""
        if wait:
            yield self._queue.get()
        while not self._queue.empty():
            yield self._queue.get()
