"""From a running server to its exit code: a signal, an engine that dies, a step that is stuck."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable

from drut.engine.async_engine import AsyncEngine, EngineDeadError
from drut.engine.messages import Stats
from drut.server.admission.admission import Admission
from drut.server.admission.ask import DrainingError
from drut.server.life.health import PING_S, Health
from drut.server.life.watchdog import Watchdog

DEAD_EXIT, FORCED_EXIT = 1, 1
FLUSH_S = 0.5  # for the last words to reach the clients
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Lifecycle:
    """Watches over an engine whose model is loaded. Signals are heard in the main thread's event loop alone.

    `code = await lifecycle.run()` returns once all requests have been answered, one way or another; then the caller
    closes the listener and exits with the code.
    """

    def __init__(self, engine: AsyncEngine, admission: Admission, health: Health, *, drain_s: float, stuck_s: float,
                 on_stats: Callable[[Stats], None] | None = None) -> None:
        """`drain_s`: after a first signal, how long accepted requests may go on. `stuck_s`: how long a step may take.
        `on_stats` gets the engine's counts about once a second."""
        self._engine, self._admission, self.health = engine, admission, health
        self._drain_s, self._stuck_s, self._on_stats = drain_s, stuck_s, on_stats
        self._signals = 0
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """The exit code: 0 after a signal, DEAD_EXIT where the engine ended, FORCED_EXIT after a second signal."""
        loop = asyncio.get_running_loop()
        self.health.attach(self._engine)
        self._engine.on_death(lambda reason: self._changed.set())
        watchdog = Watchdog(self._stuck_s, lambda: self.health.unanswered, loop,
                            dump_engine=self._engine.dump_stacks, on_stuck=self._engine.kill)
        pulse = loop.create_task(self._pulse())
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                loop.add_signal_handler(number, self.stop)
        watchdog.start()
        try:
            await self._until(lambda: self._signals > 0)
            code = await self._shut_down() if self._engine.dead is None else DEAD_EXIT
            await asyncio.sleep(FLUSH_S)
            return code
        finally:
            pulse.cancel()
            if self._engine.dead is None:
                watchdog.stop()  # else it sees to the end, should a stuck thread be in the way of one

    async def _shut_down(self) -> int:
        """Drains, until all is done, time is up, a second signal comes or the engine dies."""
        self.health.draining = True
        drained = asyncio.ensure_future(self._admission.drain(self._drain_s))
        drained.add_done_callback(lambda _: self._changed.set())
        await self._until(lambda: drained.done() or self._signals > 1)
        if self._engine.dead is not None:
            code = DEAD_EXIT
        elif drained.done():
            code = 0
        else:
            code = FORCED_EXIT
            self._admission.end_all(DrainingError("the server was told to end now"))
        drained.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await drained
        return code

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Until `condition` holds or the engine is dead."""
        while not condition() and self._engine.dead is None:
            self._changed.clear()
            await self._changed.wait()

    def stop(self) -> None:
        """What a signal does: the first time drains, the second ends at once."""
        self._signals += 1
        self._changed.set()

    async def _pulse(self) -> None:
        with contextlib.suppress(EngineDeadError):
            while True:
                stats = await self.health.ask()
                if self._on_stats is not None:
                    self._on_stats(stats)
                await asyncio.sleep(PING_S)
