"""Benchmarks in virtual time: sockets and code are real, but the clock stands still while any event loop of this
process has work, and jumps to the next timer once none has. So minutes of load take seconds, and times are exact.

`virtual_time` (a fixture) puts all event loops of the process on this clock, and client processes into the loop of
their parent. Only waits of event loops are virtual: `time.sleep` and waits of threads are real.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from drut.bench import alarm
from drut.bench.engines.engine import Launch
from drut.bench.engines.mock import MockEngine
from drut.bench.load import fleet, http, worker
from drut.bench.load.process import Process
from drut.bench.load.wire import Broken, FromWorker, WorkerJob, put
from drut.bench.mock import server as mock_server
from drut.bench.mock.http import MockConnection
from drut.bench.mock.script import Script, load_script
from drut.errors import DrutError

TICK_S = 1e-9  # from one reading of the clock to the next: who comes early by a rounding error tries again
LOOK_S = 0.02  # between looks at what is outside: other threads that do not use an event loop


class Clock:
    """The time of all loops of this process."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.loops: set[VirtualLoop] = set()
        self._lock = threading.Lock()
        self._waiting: dict[VirtualLoop, float] = {}  # and until when

    def monotonic(self) -> float:
        self.now += TICK_S
        return self.now

    def wait(self, loop: VirtualLoop, seconds: float | None, look: Callable[[float], list[Any]]) -> list[Any]:
        """What `look` finds on the sockets of `loop`, at the latest after `seconds`."""
        due = math.inf if seconds is None else self.now + seconds
        while True:
            with self._lock:
                self._waiting[loop] = due
                self._advance(loop)
                if self.now >= due:
                    del self._waiting[loop]
                    return look(0)
            if found := look(LOOK_S):
                with self._lock:
                    del self._waiting[loop]
                return found

    def _advance(self, loop: VirtualLoop) -> None:
        """Moves the clock if all loops wait and none of them has something to read."""
        if len(self._waiting) < len(self.loops) or any(other.has_events() for other in self._waiting):
            return
        first = min(self._waiting.values())
        if self.now < first < math.inf:
            self.now = first
        for other, due in self._waiting.items():
            if other is not loop and due <= self.now:
                other.wake()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop by `clock`. Work for other threads is done at once."""

    def __init__(self, clock: Clock) -> None:
        loop = self

        class Selector(selectors.EpollSelector):
            def select(self, timeout: float | None = None) -> list[Any]:
                if timeout is not None and timeout <= 0:
                    return super().select(0)
                return clock.wait(loop, timeout, super().select)

        self._chosen = Selector()
        super().__init__(self._chosen)
        self._clock = clock
        clock.loops.add(self)

    def has_events(self) -> bool:
        """Whether a socket of this loop has something to read or room that is waited for."""
        with selectors.PollSelector() as outer:
            outer.register(self._chosen.fileno(), selectors.EVENT_READ)
            return bool(outer.select(0))

    def wake(self) -> None:
        self._write_to_self()

    def close(self) -> None:
        self._clock.loops.discard(self)
        super().close()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def add_signal_handler(self, number: int, callback: Callable[..., object], *args: Any) -> None:
        """A client process hears from its parent alone."""
        if (local := _client.get()) is None:
            super().add_signal_handler(number, callback, *args)
        elif number == signal.SIGTERM:
            local.terminate = callback


class _LocalClient:
    """A client process that is a task of its parent's loop: `asyncio.subprocess.Process` as far as it is used."""

    def __init__(self) -> None:
        self.to, self.stdout = asyncio.StreamReader(), asyncio.StreamReader()
        self.stdin = _Pipe(self.to)
        self.terminate: Callable[..., object] = self.kill
        self._task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        _client.set(self)
        try:
            await worker._serve(self.to, self._say)
        except DrutError as error:
            self._say(Broken(str(error)))
        finally:
            self.stdout.feed_eof()

    def _say(self, message: FromWorker) -> None:
        put(_Pipe(self.stdout), message)

    def kill(self) -> None:
        self._task.cancel()

    async def wait(self) -> int:
        await asyncio.wait([self._task])
        return 0


_client: ContextVar[_LocalClient | None] = ContextVar("_client", default=None)


class _Pipe:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.write = reader.feed_data

    async def drain(self) -> None:
        await asyncio.sleep(0)


class LocalProcess(Process):
    """A client process as its parent sees it, in the parent's loop."""

    @classmethod
    async def start(cls, job: WorkerJob) -> Process:
        return cls(_LocalClient(), job)  # type: ignore[arg-type]


class VirtualMock:
    """`with VirtualMock(script) as server`: the scripted server, in a thread with a virtual loop."""

    def __init__(self, script: Script) -> None:
        self._script, self.url = script, ""
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> VirtualMock:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        mock = mock_server.ScriptedMock(self._script)
        server = await self._loop.create_server(lambda: MockConnection(mock), "127.0.0.1", 0, backlog=4096)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listening.set()
        await self._stop.wait()
        server.close()
        mock.close()


@pytest.fixture
def virtual_time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """All event loops of this process are on one clock that does not wait."""
    clock, patch = Clock(), monkeypatch

    def loop() -> VirtualLoop:
        return VirtualLoop(clock)

    patch.setattr(time, "monotonic", clock.monotonic)
    patch.setattr(http, "_now", clock.monotonic)
    patch.setattr(asyncio, "new_event_loop", loop)
    patch.setattr(asyncio.events, "new_event_loop", loop)
    patch.setattr(alarm, "best_timer", alarm.LoopTimer)
    patch.setattr(fleet, "Process", LocalProcess)
    return clock


@pytest.fixture
def virtual_contestants(monkeypatch: pytest.MonkeyPatch, virtual_time: Clock) -> Iterator[None]:
    """Load on a scripted server that runs as an engine goes to a virtual one with its script. The engine's process,
    its gate and what is watched of it stay real."""
    scripts: dict[str, Script] = {}
    servers: dict[str, VirtualMock] = {}
    launch, start = MockEngine.launch, LocalProcess.start

    def launched(self: MockEngine, files: Any, options: Any, port: int) -> Launch:
        found = launch(self, files, options, port)
        scripts[found.url] = load_script(options.flags[1])
        return found

    async def started(job: WorkerJob) -> Process:
        url = job.target.url
        if url not in servers:
            servers[url] = stack.enter_context(VirtualMock(scripts[url]))
        target = msgspec.structs.replace(job.target, url=servers[url].url)
        return await start(msgspec.structs.replace(job, target=target))

    monkeypatch.setattr(MockEngine, "launch", launched)
    monkeypatch.setattr(LocalProcess, "start", started)
    with ExitStack() as stack:
        yield
