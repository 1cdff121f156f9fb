"""A fair lock: threads get it in the order of their calls."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class CallTurn:
    """A fair lock, used as `with turn:`. Not reentrant; `try_enter` never waits."""

    def __init__(self) -> None:
        self._state = threading.Lock()  # held for a few instructions at a time
        self._taken = False
        self._queue: deque[threading.Lock] = deque()  # one gate for each waiting thread

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
        except BaseException:  # an interrupt: the next thread gets this place
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
        """Takes the lock if it is free; returns False otherwise. Never waits, not even for `_state`: the garbage
        collector
        may call it at any point of a thread, also while that thread holds `_state`."""
        if not self._state.acquire(blocking=False):
            return False
        try:
            free, self._taken = not self._taken, True
            return free
        finally:
            self._state.release()

    def leave(self) -> None:
        """Releases the lock after `try_enter`."""
        self._pass_on()

    def _pass_on(self) -> None:
        with self._state:
            if self._queue:
                self._queue.popleft().release()  # hand over: it stays taken
            else:
                self._taken = False
