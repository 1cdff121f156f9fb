"""Blockers: reasons why a request cannot be scheduled yet, such as a grammar that is being compiled.

A blocker becomes ready on any thread and wakes the engine loop. The engine's thread then resolves it, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from drut.engine.request.request import Request
from drut.errors import DrutError

IDLE_S = 0.05  # maximum sleep of an engine in which all requests are blocked; it reads messages in between


class Blocker(Protocol):
    """A reason to wait. `kind`: one of `work.WAITS`; `reason`: the same as a clause, for a refused admission."""

    kind: str
    reason: str

    @property
    def ready(self) -> bool:
        """True if `resolve` would not wait. Any thread may read it."""
        ...

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Calls `wake` when it becomes ready, from any thread; at once if it is ready already."""
        ...

    def resolve(self) -> DrutError | None:
        """Unblocks the request, or returns the error that ends it. Called once, when ready, on the engine's thread."""
        ...


class Blocked:
    """Holds the requests that have an unresolved blocker."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._wake = threading.Event()

    def add(self, requests: Iterable[Request]) -> None:
        """Adds those requests that have blockers, until all their blockers are resolved."""
        for request in requests:
            if request.blockers:
                self._requests.append(request)
                for blocker in request.blockers:
                    blocker.when_ready(self._wake.set)

    def wait(self) -> None:
        """Sleeps until a blocker is ready, at most IDLE_S; returns at once if no request is blocked."""
        if self._requests:
            self._wake.wait(IDLE_S)

    def resolve(self) -> list[Request]:
        """Resolves the blockers that are ready. Returns the requests that failed; their `failure` has the error."""
        if not self._requests:
            return []
        self._wake.clear()  # before the blockers are checked: one that becomes ready now wakes the next wait
        failed = [request for request in self._requests if request.finish_reason is None and _fails(request)]
        self._requests = [r for r in self._requests if r.blockers and r.finish_reason is None and r.failure is None]
        return failed


def _fails(request: Request) -> bool:
    for blocker in [b for b in request.blockers if b.ready]:
        request.blockers.remove(blocker)
        request.failure = blocker.resolve()
        if request.failure is not None:
            return True
    return False
