"""Ends a run early: by a signal, or if all requests fail."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from drut.bench.load.process import Process

INTERRUPTED = "interrupted"
HOPELESS, HOPELESS_S = 20, 10.0
"""The number of failed requests, none having succeeded, and the seconds after which they end the run."""
LAST_WORDS_S = 2.0  # time for client processes to end in order


class Halt:
    """Holds the reason and time of an early end; `why` is None while the run continues."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.at_s: float | None = None  # seconds from the run's start
        self.interrupted = False
        self._running = False
        self._patience_s = 0.0

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Makes SIGINT and SIGTERM end the run in order. The second signal, or one before the load began, cancels the
        current task. Works in the main thread only."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def hear() -> None:
            if self.interrupted or not self._running:
                task.cancel()
            self.interrupted = True

        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in signals}
        for number in signals:
            loop.add_signal_handler(number, hear)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def look(self, elapsed_s: float, done: int, failed: int, processes: Sequence[Process]) -> bool:
        """Stops the processes if the run is to end early: `failed` of the `done` requests have failed so far. Returns
        True when it is time to stop waiting for them."""
        self._running = True
        if self.why is not None:
            return elapsed_s > self._patience_s
        if self.interrupted:
            self._begin(INTERRUPTED, elapsed_s, processes)
        elif elapsed_s >= HOPELESS_S and done == failed >= HOPELESS:
            words = next((record.detail for process in processes for record in process.records), "")
            self._begin(f"the first {done} requests all failed, for example: {words}", elapsed_s, processes)
        return False

    def _begin(self, why: str, elapsed_s: float, processes: Sequence[Process]) -> None:
        self.why, self.at_s, self._patience_s = why, elapsed_s, elapsed_s + LAST_WORDS_S
        for process in processes:
            process.stop()
