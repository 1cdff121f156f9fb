"""Notices an engine or an event loop that is stuck, shows where, and makes sure that the process ends."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable

STUCK_EXIT = 70
TICKS = 8  # looks within the patience
GRACE_S = 5.0  # for open requests to be answered, before the process ends anyway
DUMP_S = 0.5  # for another process to write its stacks


class Watchdog:
    """A thread that outlives whatever hangs.

    It counts its own looks, not seconds: a machine that slept, or a server that was stopped and goes on, has not been
    stuck meanwhile.
    """

    def __init__(self, patience_s: float, owed: Callable[[], int], loop: asyncio.AbstractEventLoop, *,
                 dump_engine: Callable[[], None], on_stuck: Callable[[str], None]) -> None:
        """`owed`: the number of the question the engine has not answered, 0 for none. `on_stuck` is called in the
        event loop with the reason; it must answer what is open and end the server."""
        self._patience_s, self._owed, self._loop = patience_s, owed, loop
        self._dump_engine, self._on_stuck = dump_engine, on_stuck
        self._stopped = threading.Event()
        self._beats = 0  # of the event loop
        self._thread = threading.Thread(target=self._run, name="drut-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing is watched any more."""
        self._stopped.set()

    def _run(self) -> None:
        question = silent = beats = missed = 0
        while not self._stopped.wait(self._patience_s / TICKS):
            owed = self._owed()
            silent = silent + 1 if owed and owed == question else 0
            missed = missed + 1 if beats == self._beats else 0
            question, beats = owed, self._beats
            if missed > TICKS:
                self._end("the event loop", f"the event loop has been stuck for {self._patience_s:g} s", wait=False)
            if silent >= TICKS and not missed:  # a loop that is stuck would not hear the engine's answer
                self._end("the engine", f"a step of the engine has been stuck for {self._patience_s:g} s", wait=True)
            self._call(self._beat)

    def _beat(self) -> None:
        self._beats += 1

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _end(self, who: str, reason: str, *, wait: bool) -> None:
        print(f"drut: {reason}; the stacks of all threads:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        if wait:
            self._dump_engine()
            time.sleep(DUMP_S)
            self._call(self._on_stuck, reason)
            time.sleep(GRACE_S)
        os._exit(STUCK_EXIT)
