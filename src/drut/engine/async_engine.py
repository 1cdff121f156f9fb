"""The asynchronous surface: one iterator a request, any number at a time; the engine in a thread or a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from numbers import Integral
from pathlib import Path
from typing import Any

from drut.config import EngineConfig
from drut.engine.messages import Abort, Failed, FromEngine, Output, Ready, Stop, Submit
from drut.engine.output import Chunk
from drut.engine.params import SamplingParams
from drut.engine.transport import ProcessTransport, ThreadTransport, Transport
from drut.errors import DrutError, RequestError


class EngineDeadError(DrutError):
    """The engine has ended; with it, all its requests."""


class AsyncEngine:
    """`async with AsyncEngine(model) as engine: async for chunk in engine.generate(...)`.

    Leaving an iterator early, or cancelling its task, aborts the request. Settings are those of `LLM`.
    """

    def __init__(self, model: str | Path, *, process: bool = False, **settings: Any) -> None:
        config = EngineConfig.resolve(settings)
        kind = ProcessTransport if process else ThreadTransport
        self._transport: Transport = kind(str(model), config)
        self._queues: dict[str, asyncio.Queue[Output | Failed]] = {}
        self._names: set[str] = set()
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
        self._die(Failed("", "the engine was stopped", False))
        await asyncio.to_thread(self._transport.join)

    @property
    def ready(self) -> Ready:
        """How the model was loaded, and the numerics id."""
        assert self._ready is not None, "use inside `async with`"
        return self._ready.result()

    async def generate(self, prompt: str | list[int], params: SamplingParams | None = None, *,
                       request_id: str | None = None, priority: int = 0, salt: str = "") -> AsyncGenerator[Chunk, None]:
        """Chunks of every choice of one request, in the order they come.

        RequestError if it is invalid, another DrutError if it failed, EngineDeadError if the engine did.
        """
        if self._dead is not None:
            raise EngineDeadError(self._dead)
        prompt = _checked(prompt)
        self._serial += 1
        name = request_id if request_id is not None else f"a{self._serial}"
        if name in self._names:
            raise RequestError(f"request id {name!r} is in use")
        unique = f"{name}.{self._serial}"  # what is still on its way from a stopped request of that name goes nowhere
        queue = self._queues[unique] = asyncio.Queue()
        self._names.add(name)
        finished = True
        try:
            self._transport.send(Submit(unique, prompt, params or SamplingParams(), priority, salt))
            finished = False
            while not finished:
                message = await queue.get()
                if isinstance(message, Failed):
                    finished = True
                    raise _error(message)
                finished = message.last
                yield message.chunk
        except UnicodeEncodeError:
            raise RequestError("text holds a lone surrogate") from None
        finally:
            del self._queues[unique]
            self._names.remove(name)
            if not finished:
                self._transport.send(Abort(unique))

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
        self._dead = self._dead or failure.message
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(_error(failure))
        for queue in self._queues.values():
            queue.put_nowait(failure)


def _checked(prompt: str | Iterable[int]) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    ids = list(prompt) if isinstance(prompt, Iterable) else [None]
    if not all(isinstance(i, Integral) and -1 << 63 <= i < 1 << 63 for i in ids):
        raise RequestError("a prompt is text or a list of token ids")
    return [int(i) for i in ids]


def _error(failure: Failed) -> DrutError:
    if failure.invalid:
        return RequestError(failure.message)
    return DrutError(failure.message) if failure.id else EngineDeadError(failure.message)
