"""A memory budget for large replies: those above it wait for their turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ReplyMemory:
    """A budget of `most` bytes for replies that are being made. Use it in one event loop.

    A reply larger than the budget takes all of it. Small replies never wait.
    """

    def __init__(self, most: int, *, small: int) -> None:
        """`small`: maximum bytes of a reply that is not counted."""
        self._most, self._small = most, small
        self._held = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int, patience_s: float) -> AsyncIterator[None]:
        """Waits until `size` bytes are free, first come first served, and holds them until the end of the block.

        TimeoutError after `patience_s` seconds.
        """
        size = 0 if size <= self._small else min(size, self._most)
        if size and (self._queue or self._held + size > self._most):
            place = size, asyncio.get_running_loop().create_future()
            self._queue.append(place)
            try:
                async with asyncio.timeout(patience_s):
                    await place[1]
            except (asyncio.CancelledError, TimeoutError):
                if place in self._queue:
                    self._queue.remove(place)
                elif not place[1].cancelled():  # the bytes were granted, and the wait ended before this task ran
                    self._held -= size
                self._admit()
                raise
        else:
            self._held += size
        try:
            yield
        finally:
            self._held -= size
            self._admit()

    def _admit(self) -> None:
        while self._queue and self._held + self._queue[0][0] <= self._most:
            size, ready = self._queue.popleft()
            if not ready.done():  # done: its task was cancelled and has not run since
                self._held += size
                ready.set_result(None)
