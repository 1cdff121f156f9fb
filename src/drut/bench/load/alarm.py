"""Wakes callbacks at absolute times to some ten microseconds.

Timers of event loops count in milliseconds: every request would be sent up to 1 ms late, and the wait would be
charged to the server. The kernel's timerfd is exact, and costs one wake-up for each moment at which something is due.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_NONBLOCK, _ABSOLUTE = os.O_NONBLOCK, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Alarm:
    """Callbacks at times of `time.monotonic()`, in order of time, never early. Belongs to the running loop.

    Where there is no timerfd, the loop's own timers serve. `close` drops what is not due yet.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._armed: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        try:
            self._fd = int(self._libc.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK | os.O_CLOEXEC))
        except AttributeError:
            self._fd = -1
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Calls back at `when`, or as soon as may be where that has passed."""
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, callback))
        if self._armed is None or when < self._armed:
            self._arm(when)

    async def until(self, when: float) -> None:
        """Returns at `when`; at once where that has passed."""
        if when > time.monotonic():
            done = self._loop.create_future()
            self.at(when, partial(_wake, done))
            await done

    def close(self) -> None:
        """No callback comes any more."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _arm(self, when: float) -> None:
        self._armed = when
        if self._fd < 0:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(max(0.0, when - time.monotonic()), self._fire)
            return
        sec = int(when)
        nsec = max(1, int((when - sec) * 1e9))  # a timer of zero is off; one in the past fires at once
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(sec, nsec))
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _readable(self) -> None:
        self._fire()
        if self._armed is None and self._fd >= 0:  # arming it anew would have made it unreadable too
            with suppress(BlockingIOError):
                os.read(self._fd, 8)

    def _fire(self) -> None:
        self._armed = None
        heap = self._heap
        while heap and heap[0][0] <= time.monotonic():
            heapq.heappop(heap)[2]()
        if heap and (self._armed is None or heap[0][0] < self._armed):
            self._arm(heap[0][0])


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
