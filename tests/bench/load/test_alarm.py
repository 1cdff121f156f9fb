"""Never early, in order, and close to the time."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from drut.bench.load import alarm as module
from drut.bench.load.alarm import Alarm


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


def sleeps_too_long() -> float:
    """The median overshoot of twenty short sleeps: what the machine adds today to any wake-up."""
    late = []
    for _ in range(20):
        start = time.monotonic()
        time.sleep(0.005)
        late.append(time.monotonic() - start - 0.005)
    return sorted(late)[10]


def test_calls_come_within_half_a_millisecond_where_the_cpu_is_free() -> None:
    """Timers of whole milliseconds are half of one late in the median. Tries count only between two moments in which
    the machine lets this process sleep exactly, and the best of them counts."""
    quiet = []
    for _ in range(12):
        before = sleeps_too_long()
        calls = rung()
        if max(before, sleeps_too_long()) < 0.25e-3:
            quiet.append(sorted(at - when for when, at in calls)[100])
        if quiet and quiet[-1] < 0.4e-3:
            return
    if len(quiet) < 4:
        pytest.skip("others keep this machine too busy to tell half a millisecond")
    assert min(quiet) < 0.4e-3


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
