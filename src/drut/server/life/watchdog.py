"""The watchdog: detects a stuck engine or event loop, prints the stacks, and makes sure that the process ends."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable

STUCK_EXIT = 70
TICKS = 8  # checks within `patience_s`
GRACE_S = 5.0  # for open requests to get their errors, before the process ends anyway
DUMP_S = 0.5  # for another process to write its stacks


class Watchdog:
    """A thread that ends the process if the engine or the event loop hangs.

    It counts its own checks, not seconds: a machine that slept or a process that was stopped and continued was not
    stuck meanwhile.
    """

    def __init__(self, patience_s: float, pending_ping: Callable[[], int], loop: asyncio.AbstractEventLoop, *,
                 dump_engine: Callable[[], None], on_stuck: Callable[[str], None]) -> None:
        """`pending_ping` returns the number of the ping that the engine has not answered, 0 for none; the watchdog's
        thread calls it. `on_stuck` is called in the event loop with the reason; it must fail the open requests and end
        the server."""
        self._patience_s, self._pending_ping, self._loop = patience_s, pending_ping, loop
        self._dump_engine, self._on_stuck = dump_engine, on_stuck
        self._stopped = threading.Event()
        self._beats = 0  # written by the event loop, read by the thread
        self._thread = threading.Thread(target=self._run, name="drut-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stopped.set()

    def _run(self) -> None:
        ping = silent = beats = missed = 0
        while not self._stopped.wait(self._patience_s / TICKS):
            pending = self._pending_ping()
            silent = silent + 1 if pending and pending == ping else 0
            missed = missed + 1 if beats == self._beats else 0
            ping, beats = pending, self._beats
            if missed > TICKS:
                self._end(f"the event loop has been stuck for {self._patience_s:g} s", wait=False)
            if silent >= TICKS and not missed:  # a stuck event loop would not receive the engine's answer
                self._end(f"a step of the engine has been stuck for {self._patience_s:g} s", wait=True)
            self._call(self._beat)

    def _beat(self) -> None:
        self._beats += 1

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _end(self, reason: str, *, wait: bool) -> None:
        print(f"drut: {reason}; the stacks of all threads:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        if wait:
            self._dump_engine()
            time.sleep(DUMP_S)
            self._call(self._on_stuck, reason)
            time.sleep(GRACE_S)
        os._exit(STUCK_EXIT)
