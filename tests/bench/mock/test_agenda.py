"""The agenda: in order, on time, and never moved by what was late."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

import pytest

from drut.bench.mock.agenda import Agenda, Alarm, CallLater, TimerFd, best_alarm

pytestmark = pytest.mark.serial

ALARMS = [CallLater, pytest.param(TimerFd, marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux's own"))]


class Ticker:
    """Due every `gap`; notes when it was called."""

    def __init__(self, start: float, gap: float, count: int, log: list[tuple[float, float]], delay: float = 0) -> None:
        self.due, self.gap, self.left, self.log, self.delay = start, gap, count, log, delay

    def fire(self) -> float | None:
        self.log.append((self.due, time.monotonic()))
        time.sleep(self.delay)
        self.due, self.left = self.due + self.gap, self.left - 1
        return self.due if self.left else None


def run(make: Callable[..., Alarm], tickers: Callable[[float], list[Ticker]], seconds: float) -> None:
    async def main() -> None:
        agenda = Agenda(lambda ring: make(ring, asyncio.get_running_loop()))
        now = time.monotonic()
        for ticker in tickers(now):
            agenda.add(ticker.due, ticker)
        await asyncio.sleep(seconds)
        agenda.close()

    asyncio.run(main())


@pytest.mark.parametrize("make", ALARMS)
def test_never_early_and_in_order(make: Callable[..., Alarm]) -> None:
    log: list[tuple[float, float]] = []
    run(make, lambda now: [Ticker(now + 0.013, 0.005, 6, log), Ticker(now + 0.011, 0.007, 5, log),
                           Ticker(now - 1, 0.0, 1, log)], 0.3)
    assert len(log) == 12
    assert [due for due, _ in log] == sorted(due for due, _ in log)
    # The event loop's own alarm rounds to its clock's grain, a millisecond.
    assert all(at >= due - (0.001 if make is CallLater else 1e-6) for due, at in log)


@pytest.mark.parametrize("make", ALARMS)
def test_a_late_call_moves_no_later_one(make: Callable[..., Alarm]) -> None:
    log: list[tuple[float, float]] = []
    starts: list[float] = []

    def tickers(now: float) -> list[Ticker]:
        starts.append(now)
        return [Ticker(now + 0.02, 0.02, 8, log), Ticker(now + 0.02, 1, 1, [], delay=0.05)]

    run(make, tickers, 0.5)
    assert [due - starts[0] for due, _ in log] == pytest.approx([0.02 * i for i in range(1, 9)])
    assert min(at - due for due, at in log[4:]) < 0.02  # it caught up with its schedule


@pytest.mark.parametrize("make", ALARMS)
def test_one_failure_ends_that_task_alone(make: Callable[..., Alarm]) -> None:
    class Broken:
        due = 0.0

        def fire(self) -> float | None:
            raise RuntimeError("broken")

    log: list[tuple[float, float]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        agenda = Agenda(lambda ring: make(ring, asyncio.get_running_loop()))
        agenda.add(time.monotonic(), Broken())
        agenda.add(time.monotonic() + 0.01, Ticker(0, 0, 1, log))
        await asyncio.sleep(0.1)
        agenda.close()

    asyncio.run(main())
    assert len(log) == 1


def test_the_best_alarm_is_the_systems() -> None:
    async def main() -> Alarm:
        alarm = best_alarm(lambda: None)
        alarm.close()
        return alarm

    assert isinstance(asyncio.run(main()), TimerFd if sys.platform == "linux" else CallLater)
