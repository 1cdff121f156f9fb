"""The asynchronous surface: one iterator a request, any number at a time; the engine in a thread or a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from drut.config import EngineConfig
from drut.engine.messages import Abort, Failed, FromEngine, Output, Ready, Stop, Submit
from drut.engine.output import Chunk
from drut.engine.params import SamplingParams
from drut.engine.transport import ProcessTransport, ThreadTransport, Transport
from drut.errors import DrutError, RequestError


class EngineDeadError(DrutError):
    """The engine ended while requests were open."""


class AsyncEngine:
    """`async with AsyncEngine(model) as engine: async for chunk in engine.generate(...)`.

    Leaving an iterator early, or cancelling its task, aborts the request. Settings are those of `LLM`.
    """

    def __init__(self, model: str | Path, *, process: bool = False, **settings: Any) -> None:
        config = EngineConfig.resolve(settings)
        kind = ProcessTransport if process else ThreadTransport
        self._transport: Transport = kind(str(model), config)
        self._queues: dict[str, asyncio.Queue[Output | Failed]] = {}
        self._ready: asyncio.Future[Ready] | None = None
        self._dead: str | None = None
        self._serial = 0

    async def __aenter__(self) -> AsyncEngine:
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()

        def deliver(messages: list[FromEngine]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._dispatch, messages)

        self._transport.start(deliver)
        await self._ready
        return self

    async def __aexit__(self, *_: object) -> None:
        self._transport.send(Stop())
        await asyncio.to_thread(self._transport.join)

    @property
    def ready(self) -> Ready:
        """How the model was loaded, and the numerics id."""
        assert self._ready is not None, "use inside `async with`"
        return self._ready.result()

    async def generate(self, prompt: str | list[int], params: SamplingParams | None = None, *,
                       request_id: str | None = None, priority: int = 0, salt: str = "") -> AsyncGenerator[Chunk, None]:
        """Chunks of every choice of one request, in the order they come. RequestError if it is invalid."""
        if self._dead is not None:
            raise EngineDeadError(self._dead)
        if request_id is None:
            self._serial += 1
            request_id = f"a{self._serial}"
        if request_id in self._queues:
            raise RequestError(f"request id {request_id!r} is in use")
        queue = self._queues[request_id] = asyncio.Queue()
        self._transport.send(Submit(request_id, prompt, params or SamplingParams(), priority, salt))
        finished = False
        try:
            while not finished:
                message = await queue.get()
                if isinstance(message, Failed):
                    finished = True
                    raise RequestError(message.message) if message.invalid else EngineDeadError(message.message)
                finished = message.last
                yield message.chunk
        finally:
            del self._queues[request_id]
            if not finished:
                self._transport.send(Abort(request_id))

    def _dispatch(self, messages: list[FromEngine]) -> None:
        for message in messages:
            if isinstance(message, Ready):
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(message)
            elif message.id or isinstance(message, Output):
                queue = self._queues.get(message.id)
                if queue is not None:
                    queue.put_nowait(message)
            else:
                self._die(message)

    def _die(self, failure: Failed) -> None:
        self._dead = failure.message
        if self._ready is not None and not self._ready.done():
            error = RequestError if failure.invalid else EngineDeadError
            self._ready.set_exception(error(failure.message))
        for queue in self._queues.values():
            queue.put_nowait(failure)
