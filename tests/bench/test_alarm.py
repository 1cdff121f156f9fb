"""Never early, in order, close to the time, and never moved by what was late."""

from __future__ import annotations

import asyncio
import ctypes
import random
import sys
import time
from collections.abc import Callable

import pytest

from drut.bench import alarm as module
from drut.bench.alarm import Alarm, KernelTimer, LoopTimer, TimerSpec

pytestmark = pytest.mark.serial

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux's own")


@pytest.fixture(params=[LoopTimer, pytest.param(KernelTimer, marks=linux)], autouse=True)
def timer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "best_timer", request.param)


class Ticker:
    """Due every `gap`; notes when it was called."""

    def __init__(self, start: float, gap: float, count: int, log: list[tuple[float, float]], delay: float = 0) -> None:
        self.due, self.gap, self.left, self.log, self.delay = start, gap, count, log, delay

    def fire(self) -> float | None:
        self.log.append((self.due, time.monotonic()))
        time.sleep(self.delay)
        self.due, self.left = self.due + self.gap, self.left - 1
        return self.due if self.left else None


def run(tickers: Callable[[float], list[Ticker]], seconds: float) -> None:
    async def main() -> None:
        alarm = Alarm()
        now = time.monotonic()
        for ticker in tickers(now):
            alarm.at(ticker.due, ticker.fire)
        await asyncio.sleep(seconds)
        alarm.close()

    asyncio.run(main())


def test_calls_come_in_order_and_never_early() -> None:
    calls: list[tuple[float, float]] = []

    async def main() -> None:
        alarm = Alarm()
        start = time.monotonic() + 0.01
        for when in (start + random.Random(1).random() * 0.2 for _ in range(200)):
            alarm.at(when, lambda when=when: calls.append((when, time.monotonic())))
        await alarm.until(start + 0.25)
        while len(calls) < 200:  # a process that got no CPU for so long has them all still to come
            await asyncio.sleep(0.01)
        alarm.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert [w for w, _ in calls] == sorted(w for w, _ in calls)
    assert all(at >= when for when, at in calls)


def test_what_is_due_again_keeps_its_order() -> None:
    log: list[tuple[float, float]] = []
    run(lambda now: [Ticker(now + 0.013, 0.005, 6, log), Ticker(now + 0.011, 0.007, 5, log),
                     Ticker(now - 1, 0.0, 1, log)], 0.3)
    assert len(log) == 12
    assert [due for due, _ in log] == sorted(due for due, _ in log)
    assert all(at >= due for due, at in log)


def test_a_late_call_moves_no_later_one() -> None:
    log: list[tuple[float, float]] = []
    starts: list[float] = []

    def tickers(now: float) -> list[Ticker]:
        starts.append(now)
        return [Ticker(now + 0.02, 0.02, 8, log), Ticker(now + 0.02, 1, 1, [], delay=0.05)]

    run(tickers, 0.5)
    assert [due - starts[0] for due, _ in log] == pytest.approx([0.02 * i for i in range(1, 9)])
    assert min(at - due for due, at in log[4:]) < 0.02  # it caught up with its schedule


def test_one_failure_ends_that_callback_alone() -> None:
    def broken() -> float | None:
        raise RuntimeError("broken")

    log: list[tuple[float, float]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        alarm = Alarm()
        alarm.at(time.monotonic(), broken)
        alarm.at(time.monotonic() + 0.01, Ticker(0, 0, 1, log).fire)
        await asyncio.sleep(0.1)
        alarm.close()

    asyncio.run(main())
    assert len(log) == 1


def test_a_call_that_makes_an_earlier_one_and_one_in_the_past() -> None:
    order: list[str] = []

    async def main() -> None:
        alarm = Alarm()
        now = time.monotonic()

        def past() -> None:
            order.append("past")
            alarm.at(now + 0.01, lambda: order.append("soon"))

        alarm.at(now + 0.03, lambda: order.append("late"))
        alarm.at(now - 5, past)
        await alarm.until(now + 0.05)
        alarm.at(now + 0.06, lambda: order.append("never"))
        alarm.close()
        await asyncio.sleep(0.03)

    asyncio.run(main())
    assert order == ["past", "soon", "late"]


@linux
def test_the_kernels_timer_is_set_to_the_microsecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's own report, so that it holds on a busy machine; a loop's timer is set to a millisecond."""
    timers: list[KernelTimer] = []
    monkeypatch.setattr(module, "best_timer", lambda ring: timers.append(KernelTimer(ring)) or timers[0])

    async def main() -> None:
        alarm = Alarm()
        libc, left = ctypes.CDLL(None), TimerSpec()
        for when in (time.monotonic() + 60.0004321 - i for i in range(5)):  # each before those that are set
            alarm.at(when, lambda: None)
            before = time.monotonic()
            assert libc.timerfd_gettime(timers[0].fd, ctypes.byref(left)) == 0
            after = time.monotonic()
            assert when - after - 1e-6 < left.at_s + left.at_ns * 1e-9 < when - before + 1e-6
        alarm.at(time.monotonic() + 70, lambda: None)
        assert libc.timerfd_gettime(timers[0].fd, ctypes.byref(left)) == 0
        assert left.at_s < 60  # the earliest stands
        alarm.close()

    asyncio.run(main())


def test_the_best_timer_is_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    async def main() -> type:
        timer = module.best_timer(lambda: None)
        timer.close()
        return type(timer)

    assert asyncio.run(main()) is (KernelTimer if sys.platform == "linux" else LoopTimer)
    monkeypatch.setattr(module.ctypes, "CDLL", lambda *_, **__: object())  # a C library without timerfd
    assert asyncio.run(main()) is LoopTimer
