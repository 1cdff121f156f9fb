"""The lifecycle of a running server: signals, an engine that dies, a step that is stuck, and the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable

from drut.engine.service.async_engine import AsyncEngine
from drut.engine.service.messages import Stats
from drut.errors import EngineDeadError
from drut.server.admission.admission import AdmissionControl
from drut.server.admission.queued_request import DrainingError
from drut.server.life.health import PING_S, Health
from drut.server.life.watchdog import Watchdog

DEAD_EXIT, FORCED_EXIT = 1, 1
FLUSH_S = 0.5  # for the last replies to reach the clients
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Lifecycle:
    """Watches an engine whose model is loaded. Signals are handled only in an event loop of the main thread.

    `code = await lifecycle.run()` returns once every request has been answered or failed; then the caller closes the
    listener and exits with the code.
    """

    def __init__(self, engine: AsyncEngine, admission: AdmissionControl, health: Health, *, drain_s: float,
                 stuck_s: float,
                 on_stats: Callable[[Stats], None] | None = None) -> None:
        """`drain_s`: maximum seconds that accepted requests run after a first signal. `stuck_s`: maximum seconds of a
        step. `on_stats` gets the engine's stats about once a second."""
        self._engine, self._admission, self.health = engine, admission, health
        self._drain_s, self._stuck_s, self._on_stats = drain_s, stuck_s, on_stats
        self._signals = 0
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Returns the exit code: 0 after a signal, DEAD_EXIT if the engine ended, FORCED_EXIT after a second signal."""
        loop = asyncio.get_running_loop()
        self.health.attach(self._engine)
        self._engine.on_death(lambda reason: self._changed.set())
        watchdog = Watchdog(self._stuck_s, lambda: self.health.pending_ping, loop,
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
                watchdog.stop()  # with a dead engine it stays, to end a process that a stuck thread keeps from exiting

    async def _shut_down(self) -> int:
        """Drains until every request has ended, time is up, a second signal comes or the engine dies."""
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
            self._admission.end_all(DrainingError("a second signal ended the server"))
        drained.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await drained
        return code

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Waits until `condition` holds or the engine is dead."""
        while not condition() and self._engine.dead is None:
            self._changed.clear()
            await self._changed.wait()

    def stop(self) -> None:
        """Handles a signal: the first drains, the second ends every request at once."""
        self._signals += 1
        self._changed.set()

    async def _pulse(self) -> None:
        with contextlib.suppress(EngineDeadError):
            while True:
                stats = await self.health.ping()
                if self._on_stats is not None:
                    self._on_stats(stats)
                await asyncio.sleep(PING_S)
