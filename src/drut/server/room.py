"""Room for large replies: so many bytes of them at a time, the others wait for their turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ReplyRoom:
    """`most` bytes. Use in one event loop. A reply of more has it for itself; small ones pass whoever waits."""

    def __init__(self, most: int, *, small: int) -> None:
        """`small`: bytes of a reply that needs no room."""
        self._most, self._small = most, small
        self._held = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, size: int, patience_s: float) -> AsyncIterator[None]:
        """Waits until `size` bytes are free, first come first served, and keeps them until the end of the block.

        TimeoutError after `patience_s`.
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
                elif not place[1].cancelled():
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
            if not ready.done():  # its task is cancelled and has not run since
                self._held += size
                ready.set_result(None)
