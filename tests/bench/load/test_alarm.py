"""Never early, in order, and close to the time."""

from __future__ import annotations

import asyncio
import ctypes
import random
import time

import pytest

from drut.bench.load import alarm as module
from drut.bench.load.alarm import Alarm

pytestmark = pytest.mark.serial


def rung() -> list[tuple[float, float]]:
    """Wanted and actual times of 200 calls over 0.2 s."""
    calls: list[tuple[float, float]] = []

    async def main() -> None:
        alarm = Alarm()
        start = time.monotonic() + 0.01
        times = [start + random.Random(1).random() * 0.2 for _ in range(200)]
        for when in times:
            alarm.at(when, lambda when=when: calls.append((when, time.monotonic())))
        await alarm.until(start + 0.25)
        while len(calls) < 200:  # a process that got no CPU for so long has them all still to come
            await asyncio.sleep(0.01)
        alarm.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    return calls


def test_calls_come_in_order_and_never_early() -> None:
    calls = rung()
    assert len(calls) == 200
    assert [w for w, _ in calls] == sorted(w for w, _ in calls)
    assert all(at >= when for when, at in calls)


def test_the_kernels_timer_is_set_to_the_microsecond() -> None:
    """As the kernel tells it, so that it holds on a machine that is busy; a loop's timer is set to a millisecond."""
    async def main() -> None:
        alarm = Alarm()
        libc, left = ctypes.CDLL(None), module._Itimerspec()
        for when in (time.monotonic() + 60.0004321 - i for i in range(5)):  # each before those that are set
            alarm.at(when, lambda: None)
            before = time.monotonic()
            assert libc.timerfd_gettime(alarm._fd, ctypes.byref(left)) == 0
            after = time.monotonic()
            assert when - after - 1e-6 < left.value.sec + left.value.nsec * 1e-9 < when - before + 1e-6
        alarm.at(time.monotonic() + 70, lambda: None)
        assert libc.timerfd_gettime(alarm._fd, ctypes.byref(left)) == 0
        assert left.value.sec < 60  # the earliest stands
        alarm.close()

    asyncio.run(main())


def test_without_the_kernels_timer_the_loop_serves(monkeypatch) -> None:
    class Nothing:
        def __init__(self, *_: object, **__: object) -> None: ...

    monkeypatch.setattr(module.ctypes, "CDLL", Nothing)
    calls = rung()
    assert len(calls) == 200
    assert all(at >= when for when, at in calls)


def test_a_call_that_makes_an_earlier_one_and_one_in_the_past() -> None:
    order: list[str] = []

    async def main() -> None:
        alarm = Alarm()
        now = time.monotonic()
        alarm.at(now + 0.03, lambda: order.append("late"))
        alarm.at(now - 5, lambda: (order.append("past"), alarm.at(now + 0.01, lambda: order.append("soon"))))
        await alarm.until(now + 0.05)
        alarm.at(now + 0.06, lambda: order.append("never"))
        alarm.close()
        await asyncio.sleep(0.03)

    asyncio.run(main())
    assert order == ["past", "soon", "late"]
