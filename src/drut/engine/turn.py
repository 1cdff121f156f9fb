"""A lock that threads get in the order in which they ask."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turn:
    """`with turn:` waits for its place in the queue. Not reentrant; `try_enter` never waits."""

    def __init__(self) -> None:
        self._state = threading.Lock()  # held for a few instructions at a time
        self._taken = False
        self._queue: deque[threading.Lock] = deque()  # a gate for each thread that waits

    def __enter__(self) -> None:
        with self._state:
            if not self._taken:
                self._taken = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._queue.append(gate)
        try:
            gate.acquire()
        except BaseException:  # an interrupt: this thread's place goes to the next one
            with self._state:
                if gate in self._queue:
                    self._queue.remove(gate)
                    raise
            self._pass_on()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._pass_on()

    def try_enter(self) -> bool:
        """Enters where that needs no waiting at all. The garbage collector may call it at any point of a thread."""
        if not self._state.acquire(blocking=False):
            return False
        try:
            free, self._taken = not self._taken, True
            return free
        finally:
            self._state.release()

    def leave(self) -> None:
        """Ends what `try_enter` began."""
        self._pass_on()

    def _pass_on(self) -> None:
        with self._state:
            if self._queue:
                self._queue.popleft().release()  # it stays taken
            else:
                self._taken = False
