"""A ticket that is read: its chunks wait in a queue until a test takes them."""

from __future__ import annotations

import asyncio

from drut.engine.request.output import Chunk
from drut.errors import DrutError
from drut.server.admission import AdmissionControl, QueuedRequest, RequestRecord


class Reading:
    """`async for chunk in Reading(admission, ask)`. Raises what ended the request early."""

    def __init__(self, admission: AdmissionControl, ask: QueuedRequest) -> None:
        self._items: asyncio.Queue[Chunk | DrutError | None] = asyncio.Queue()
        self._over = False
        self.ticket = admission.submit(ask, self._items.put_nowait, self._items.put_nowait)

    @property
    def record(self) -> RequestRecord:
        return self.ticket.record

    def cancel(self) -> None:
        self.ticket.cancel()

    def __aiter__(self) -> Reading:
        return self

    async def __anext__(self) -> Chunk:
        if self._over:
            raise StopAsyncIteration
        item = await self._items.get()
        if isinstance(item, Chunk):
            return item
        self._over = True
        raise StopAsyncIteration if item is None else item
