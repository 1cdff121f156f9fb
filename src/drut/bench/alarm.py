"""Callbacks at absolute times, precise to some ten microseconds: one heap, one timer.

Timers of event loops count milliseconds: every request would be sent up to 1 ms late, and the latency of the server
would include that delay. The kernel's timerfd is precise, and costs one wake-up for each time at which callbacks are
due.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

Due = Callable[[], float | None]
"""Runs the callbacks that are due. Returns the time of the next call, or None if there is none."""


class Timer(Protocol):
    """A timer that calls back once, at about a given time of the monotonic clock."""

    def set(self, at: float) -> None:
        """Sets the time, which replaces an earlier one."""

    def close(self) -> None:
        """Stops the timer."""


class Alarm:
    """Runs callbacks at times of `time.monotonic()`, in order of time, never early. Belongs to the running event loop.

    A late callback does not delay later ones, and an exception of a callback does not affect the others. `close` drops
    the callbacks that are not due yet.
    """

    def __init__(self) -> None:
        self._timer = best_timer(self._ring)
        self._heap: list[tuple[float, int, Due]] = []
        self._order = itertools.count()
        self._set_for = float("inf")

    def at(self, when: float, callback: Due) -> None:
        """Schedules a callback at `when`, or as soon as possible if that time has passed."""
        heapq.heappush(self._heap, (when, next(self._order), callback))
        if when < self._set_for:
            self._set(when)

    async def until(self, when: float) -> None:
        """Returns at `when`; at once if that time has passed."""
        if when > time.monotonic():
            done = asyncio.get_running_loop().create_future()
            self.at(when, partial(_wake, done))
            await done

    def close(self) -> None:
        """Drops all callbacks."""
        self._heap.clear()
        self._timer.close()

    def _set(self, when: float) -> None:
        self._set_for = when
        self._timer.set(when)

    def _ring(self) -> None:
        # callbacks that are added meanwhile are covered by the timer set below
        heap, self._set_for = self._heap, float("-inf")
        until = time.monotonic()  # callbacks that fall due meanwhile run after the sockets were served
        try:
            while heap and heap[0][0] <= until:
                callback = heapq.heappop(heap)[2]
                again = callback()
                if again is not None:
                    heapq.heappush(heap, (again, next(self._order), callback))
        finally:
            self._set_for = float("inf")
            if heap:
                self._set(heap[0][0])


class LoopTimer:
    """A timer of the event loop, which counts whole milliseconds."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring, self._loop = ring, asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Sets the time; the callback is up to about a millisecond late."""
        self.close()
        self._handle = self._loop.call_later(max(at - time.monotonic(), 0.0), self._ring)

    def close(self) -> None:
        """Cancels the callback."""
        if self._handle is not None:
            self._handle.cancel()


class TimerSpec(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (("every_s", ctypes.c_long), ("every_ns", ctypes.c_long), ("at_s", ctypes.c_long),
                ("at_ns", ctypes.c_long))


class KernelTimer:
    """A timer of the Linux kernel, which counts nanoseconds: a file descriptor that becomes readable at the set
    time."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """Raises AttributeError or OSError if the system has no such timer."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._ring, self._loop, self._settime = ring, asyncio.get_running_loop(), libc.timerfd_settime
        self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(TimerSpec), ctypes.c_void_p)
        self.fd = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = TimerSpec()
        self._armed = False
        self._loop.add_reader(self.fd, self._readable)

    def set(self, at: float) -> None:
        """Sets the time; the callback is at most microseconds late if the CPU is free."""
        self._armed = True
        self._spec.at_s = int(at)
        self._spec.at_ns = max(1, int((at - int(at)) * 1e9))  # a timer of zero is off; one in the past rings at once
        if self._settime(self.fd, 1, self._spec, None):  # 1: an absolute time
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """Closes the file descriptor."""
        if self.fd >= 0:
            self._loop.remove_reader(self.fd)
            os.close(self.fd)
            self.fd = -1

    def _readable(self) -> None:
        self._armed = False
        try:
            self._ring()
        finally:
            if not self._armed and self.fd >= 0:  # setting the timer again makes it unreadable without a read
                with suppress(BlockingIOError):
                    os.read(self.fd, 8)


def best_timer(ring: Callable[[], None]) -> Timer:
    """Returns the most precise timer of this system."""
    with suppress(AttributeError, OSError):
        return KernelTimer(ring)
    return LoopTimer(ring)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
