"""Things to do at absolute times, to the microsecond: one heap, one alarm."""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol


class Task(Protocol):
    """Something that is due again and again."""

    def fire(self) -> float | None:
        """Do what is due. Returns when to be called next, None where never."""


class Alarm(Protocol):
    """Calls back once, at or after a time of the monotonic clock."""

    def set(self, at: float) -> None:
        """Replaces a time set before."""

    def close(self) -> None:
        """It never rings again."""


class Agenda:
    """Tasks by the time they are due. A late call never moves what is due later."""

    def __init__(self, make_alarm: Callable[[Callable[[], None]], Alarm]) -> None:
        self._alarm = make_alarm(self._ring)
        self._heap: list[tuple[float, int, Task]] = []
        self._order = itertools.count()
        self._set_for = float("inf")

    def add(self, due: float, task: Task) -> None:
        """`task` fires at `due`, in seconds of the monotonic clock."""
        heapq.heappush(self._heap, (due, next(self._order), task))
        if due < self._set_for:
            self._set(due)

    def close(self) -> None:
        """Nothing fires any more."""
        self._heap.clear()
        self._alarm.close()

    def _set(self, due: float) -> None:
        self._set_for = due
        self._alarm.set(due)

    def _ring(self) -> None:
        heap, self._set_for = self._heap, float("inf")
        until = time.monotonic()  # what falls due meanwhile waits until the sockets had their turn
        try:
            while heap and heap[0][0] <= until:
                task = heapq.heappop(heap)[2]
                due = task.fire()
                if due is not None:
                    heapq.heappush(heap, (due, next(self._order), task))
        finally:
            if heap:
                self._set(heap[0][0])


class CallLater:
    """An alarm of the event loop's own, which counts whole milliseconds."""

    def __init__(self, ring: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        self._ring, self._loop = ring, loop
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Rings up to about a millisecond late."""
        self.close()
        self._handle = self._loop.call_later(max(at - time.monotonic(), 0.0), self._ring)

    def close(self) -> None:
        """Forget what was set."""
        if self._handle:
            self._handle.cancel()


class _TimerSpec(ctypes.Structure):
    _fields_ = (("every_s", ctypes.c_long), ("every_ns", ctypes.c_long), ("at_s", ctypes.c_long),
                ("at_ns", ctypes.c_long))


class TimerFd:
    """An alarm of the Linux kernel, which counts nanoseconds: a file that is readable once the time has come."""

    def __init__(self, ring: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._ring, self._loop, self._settime = ring, loop, libc.timerfd_settime
        self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.POINTER(_TimerSpec), ctypes.c_void_p)
        self._fd = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _TimerSpec()
        loop.add_reader(self._fd, self._readable)

    def set(self, at: float) -> None:
        """Rings within microseconds where the CPU is free."""
        seconds = max(at, 1e-9)  # 0 would disarm it
        self._spec.at_s = int(seconds)
        self._spec.at_ns = int((seconds - int(seconds)) * 1e9)
        self._settime(self._fd, 1, self._spec, None)  # 1: an absolute time

    def close(self) -> None:
        """Give the file back."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew after the loop saw it ring
            return
        self._ring()


def best_alarm(ring: Callable[[], None]) -> Alarm:
    """The finest that this system has, on the running event loop."""
    loop = asyncio.get_running_loop()
    return TimerFd(ring, loop) if sys.platform == "linux" else CallLater(ring, loop)
