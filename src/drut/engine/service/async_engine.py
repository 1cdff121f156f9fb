"""The async engine: one asynchronous iterator per request; the engine runs in a thread or a process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Unpack

from drut.config import EngineConfig, EngineSettings
from drut.constrain.constraint import Constraint
from drut.engine.request.output import Chunk
from drut.engine.request.params import SamplingParams, checked_params
from drut.engine.service.messages import (
    Abort,
    Compile,
    Compiled,
    EngineReady,
    Failed,
    FromEngine,
    Inspect,
    Output,
    SetRoof,
    Stats,
    Stop,
    Submit,
)
from drut.engine.service.transport import ProcessTransport, ThreadTransport, Transport
from drut.errors import DrutError, EngineDeadError, RequestError
from drut.foreign import names_checked

Sink = Callable[[Output | Failed], None]  # receives the messages of one request, in the event loop


class AsyncEngine:
    """`async with AsyncEngine(model) as engine: async for chunk in engine.generate(...)`.

    Leaving an iterator early, or cancelling its task, aborts the request. `config` and `settings` as for `LLM`.
    Outside of `async with` every method raises DrutError at once.
    Threads: use it from one event loop only.
    """

    @names_checked
    def __init__(self, model: str | Path, *, process: bool = False, config: EngineConfig | None = None,
                 **settings: Unpack[EngineSettings]) -> None:
        kind = ProcessTransport if process else ThreadTransport
        self._model = str(model)
        self._transport: Transport = kind(self._model, EngineConfig.chosen(config, settings))
        self._sinks: dict[str, Callable[[Any], None]] = {}  # by handle: of requests, and of compilations
        self._names: set[str] = set()
        self._ready: asyncio.Future[EngineReady] | None = None
        self._inspections: list[asyncio.Future[Stats]] = []
        self._watchers: list[Callable[[str], None]] = []
        self._dead: str | None = None
        self._serial = 0
        self.heard_at = time.monotonic()  # time of the last message from the engine, seconds

    async def __aenter__(self) -> AsyncEngine:
        if self._ready is not None:
            raise DrutError("an AsyncEngine is started once: make another one")
        loop = asyncio.get_running_loop()
        self._ready = loop.create_future()

        def deliver(messages: list[FromEngine]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._dispatch, messages)

        self._transport.start(deliver)
        await self._ready
        return self

    def __repr__(self) -> str:
        state = "not started" if self._ready is None else "running" if self._dead is None else self._dead
        return f"AsyncEngine({self._model!r}, {state})"

    async def __aexit__(self, *_: object) -> None:
        self._transport.send(Stop())
        self._die(Failed("", "the engine was stopped", False))
        await asyncio.to_thread(self._transport.join)

    @property
    def ready(self) -> EngineReady:
        """The Ready message: load times, numerics id and limits of the engine."""
        return self._started().result()

    def _started(self) -> asyncio.Future[EngineReady]:
        """Raises DrutError if the engine was never started: a request would wait for ever."""
        if self._ready is None:
            raise DrutError("the engine is not started: use it inside `async with AsyncEngine(...) as engine:`")
        return self._ready

    def _running(self) -> None:
        """Raises DrutError if the engine was never started, EngineDeadError if it has ended."""
        self._started()
        if self._dead is not None:
            raise EngineDeadError(self._dead)

    @property
    def dead(self) -> str | None:
        """The reason why the engine has ended, or None."""
        return self._dead

    def on_death(self, watcher: Callable[[str], None]) -> None:
        """Calls `watcher` with the reason in the event loop when the engine ends; at once if it has ended."""
        if self._dead is not None:
            watcher(self._dead)
        else:
            self._watchers.append(watcher)

    def kill(self, reason: str) -> None:
        """Abandons the engine: all its requests fail now with `reason`. A process is killed; a thread is not waited
        for."""
        self._die(Failed("", reason, False))
        self._transport.kill()

    def dump_stacks(self) -> None:
        """Makes an engine process write its Python stacks to standard error."""
        self._transport.dump_stacks()

    def compare_with(self, roof: SetRoof) -> None:
        """Sets the roof of this machine: from now on `stats` have the roofline time of the steps, too."""
        self._started()
        self._transport.send(roof)

    async def stats(self) -> Stats:
        """Returns the counts of the engine, which answers between two steps. Raises EngineDeadError if it has ended."""
        self._running()
        answer: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._inspections.append(answer)
        self._transport.send(Inspect())
        return await answer

    def open(self, prompt: str | list[int], params: SamplingParams, sink: Sink, *, name: str = "", priority: int = 0,
             salt: str = "", lean: bool = False) -> str:
        """Starts a request whose messages go to `sink`, until one is `last` or a failure. Returns its handle.

        `lean`: the engine keeps no output. Completions have no text, ids and logprobs, and prompt logprobs come as they
        are computed, in the chunks of the first choice.
        Raises RequestError or EngineDeadError if it cannot be sent.
        """
        self._running()
        prompt = _checked(prompt)
        handle = self._handle(name)
        self._sinks[handle] = sink
        try:
            self._transport.send(Submit(id=handle, prompt=prompt, params=params, priority=priority, salt=salt,
                                        lean=lean))
        except UnicodeEncodeError:
            del self._sinks[handle]
            raise RequestError("text holds a lone surrogate") from None
        return handle

    def _handle(self, name: str) -> str:
        """Returns a new handle, so that late messages of an aborted request of that name are dropped."""
        self._serial += 1
        return f"{name}.{self._serial}"

    async def compile(self, constraint: Constraint) -> None:
        """Compiles a constraint before the requests that need it, and waits for the result. Steps continue meanwhile.

        Raises RequestError if the constraint is invalid, EngineDeadError if the engine ends.
        """
        self._running()
        answer: asyncio.Future[Compiled | Failed] = asyncio.get_running_loop().create_future()
        handle = self._handle("compile")
        self._sinks[handle] = lambda message: None if answer.done() else answer.set_result(message)
        self._transport.send(Compile(handle, constraint))
        if isinstance(message := await answer, Failed):
            raise failure_error(message)

    def abort(self, handle: str) -> None:
        """Aborts a request in any state; its sink gets no more messages. Does nothing if it has ended."""
        if self._sinks.pop(handle, None) is not None:
            self._transport.send(Abort(handle))

    @names_checked
    def generate(self, prompt: str | Sequence[int], params: SamplingParams | None = None, *,
                 request_id: str | None = None, priority: int = 0, salt: str = "") -> AsyncGenerator[Chunk, None]:
        """Yields the chunks of all choices of one request, in the order of their arrival.

        Raises RequestError if the request is invalid, another DrutError if it failed, EngineDeadError if the engine
        has ended; outside of `async with` a DrutError at once.
        """
        self._running()
        return self._generate(_checked(prompt), checked_params(params).for_text(), request_id, priority, salt)

    async def _generate(self, prompt: str | list[int], params: SamplingParams, request_id: str | None,
                        priority: int, salt: str) -> AsyncGenerator[Chunk, None]:
        name = request_id if request_id is not None else f"a{self._serial + 1}"
        if name in self._names:
            raise RequestError(f"request id {name!r} is in use")
        queue: asyncio.Queue[Output | Failed] = asyncio.Queue()
        handle = self.open(prompt, params, queue.put_nowait, name=name, priority=priority,
                           salt=salt)
        self._names.add(name)
        try:
            last = False
            while not last:
                message = await queue.get()
                if isinstance(message, Failed):
                    raise failure_error(message)
                last = message.last
                yield message.chunk
        finally:
            self._names.remove(name)
            self.abort(handle)

    def _dispatch(self, messages: list[FromEngine]) -> None:
        self.heard_at = time.monotonic()
        for message in messages:
            if isinstance(message, EngineReady):
                if self._ready is not None and not self._ready.done():
                    self._ready.set_result(message)
            elif isinstance(message, Stats):
                waiting, self._inspections = self._inspections, []
                for answer in waiting:
                    if not answer.done():
                        answer.set_result(message)
            elif message.id or not isinstance(message, Failed):
                self._deliver(message)
            else:
                self._die(message)

    def _deliver(self, message: Output | Compiled | Failed) -> None:
        sink = self._sinks.get(message.id)
        if sink is None:
            return
        if not isinstance(message, Output) or message.last:
            del self._sinks[message.id]
        sink(message)

    def _die(self, failure: Failed) -> None:
        if self._dead is not None:
            return
        self._dead = failure.message
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(failure_error(failure))
        for answer in self._inspections:
            if not answer.done():
                answer.set_exception(failure_error(failure))
        sinks, self._sinks = self._sinks, {}
        for sink in sinks.values():
            sink(failure)
        for watcher in self._watchers:
            watcher(failure.message)


def _checked(prompt: str | Iterable[int]) -> str | list[int]:
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, bytes | Mapping) or not isinstance(prompt, Iterable):
        raise RequestError(f"a prompt is text or a list of token ids, not {type(prompt).__name__}")
    ids = list(prompt)
    if not all(isinstance(i, Integral) and -1 << 63 <= i < 1 << 63 for i in ids):
        raise RequestError("a prompt is text or a list of token ids")
    return [int(i) for i in ids]


def failure_error(failure: Failed) -> DrutError:
    """Returns the exception for a failed request or engine."""
    if failure.invalid:
        return RequestError(failure.message)
    return DrutError(failure.message) if failure.id else EngineDeadError(failure.message)
