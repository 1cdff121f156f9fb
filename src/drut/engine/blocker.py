"""What a request may have to wait for before it can be scheduled: a grammar, and later KV pages from elsewhere.

A blocker becomes ready on any thread and wakes the engine's loop. On the engine's thread it is then resolved, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from drut.engine.request import Request
from drut.errors import DrutError

IDLE_S = 0.05  # the longest sleep of an engine that has nothing but blockers to wait for; messages are read in between


class Blocker(Protocol):
    """`kind`: a word of `work.WAITS`; `reason`: the same as a clause, for a refused admission."""

    kind: str
    reason: str

    @property
    def ready(self) -> bool:
        """Whether `resolve` would not wait. Any thread may ask."""
        ...

    def when_ready(self, wake: Callable[[], None]) -> None:
        """Calls `wake` once it is ready, from any thread; at once if it is ready already."""
        ...

    def resolve(self) -> DrutError | None:
        """Lets the request go on, or returns why it cannot. Called once, when ready, on the engine's thread."""
        ...


class Blocked:
    """The requests that have a blocker which is not resolved yet."""

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._wake = threading.Event()

    def add(self, requests: Iterable[Request]) -> None:
        """Those of them that have blockers are kept until all are resolved."""
        for request in requests:
            if request.blockers:
                self._requests.append(request)
                for blocker in request.blockers:
                    blocker.when_ready(self._wake.set)

    def wait(self) -> None:
        """Sleeps until a blocker is ready, or a moment; returns at once if no request is blocked."""
        if self._requests:
            self._wake.wait(IDLE_S)

    def resolve(self) -> list[Request]:
        """Resolves what is ready. Returns the requests that cannot go on; `failure` says why."""
        if not self._requests:
            return []
        self._wake.clear()  # before the blockers are looked at: one that becomes ready now wakes the next wait
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
