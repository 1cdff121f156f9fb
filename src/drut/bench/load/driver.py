"""Runs sessions against a client: an open loop by the clock, or a closed loop with a fixed number of slots.

The load begins before the measured window and continues after it, at the same rate or concurrency, until every request
scheduled within the window has ended. So no measured request meets a server that is still empty or already draining.
Then no further request is sent. A request that has not ended when the grace period has passed is a failure: dropping it
would drop the slowest requests, and waiting forever would never end if the load exceeds the server's capacity.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from drut.bench.alarm import Alarm
from drut.bench.load.answer import StreamedAnswer
from drut.bench.load.client import Client
from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import ArrivalOffer, MeasureWindow
from drut.bench.work import Message

Next = Callable[[], Awaitable[ArrivalOffer | None]]
"""Returns the next session, or None if there are no more."""

PAUSE_S, MAX_PAUSE_S = 0.1, 5.0  # of a slot after a failure; doubled by each further failure
AHEAD = 2048  # maximum of sessions of an open loop that wait for their time in the driver


class Driver:
    """Runs one client process's part of the load. `emit` is called with each completed record."""

    def __init__(self, client: Client, window: MeasureWindow, emit: Callable[[LoadRecord], None]) -> None:
        self._client, self._window, self._emit = client, window, emit
        self._alarm = Alarm()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._room = asyncio.Semaphore(AHEAD)
        self._over = asyncio.get_running_loop().create_future()
        self._start = 0.0
        self._owed = 0  # measured requests that are known to be due and have not ended
        self._waiting = 0  # sessions that wait for their time
        self._feeding = True  # sessions of the window may still arrive
        self._dry = False  # the workload has no more sessions
        self._past_end = False
        self._closing = False  # all measured requests have ended
        self._marks: list[tuple[float, float]] = []  # CPU seconds and the clock, at the begin and end of the window
        self._in_flight: set[StreamedAnswer] = set()
        self.dry_s: float | None = None

    @property
    def cpu(self) -> float:
        """Returns the CPU use of this process within the window, from 0 to 1."""
        if len(self._marks) < 2:
            return 0.0
        (cpu, at), (cpu_end, end) = self._marks[:2]
        return (cpu_end - cpu) / max(end - at, 1e-9)

    @property
    def in_flight(self) -> int:
        """Returns the number of requests in flight."""
        return len(self._in_flight)

    async def run(self, start: float, offers: Next, stagger: Sequence[float] | None) -> None:
        """Runs from `start`, a time of CLOCK_MONOTONIC: an open loop over `offers` with due times, or a closed loop
        with one slot for each entry of `stagger`, which begins that many seconds after the start."""
        self._start, window = start, self._window
        begin, end = start + window.begin, start + window.end
        self._alarm.at(begin, self._mark_cpu)
        self._alarm.at(end, self._end)
        self._alarm.at(end + window.grace, self.stop)
        if stagger is None:
            self._spawn(self._open(offers))
        else:
            self._feeding = False  # each slot requests its own sessions
            for wait in stagger:
                self._spawn(self._slot(wait, offers))
        try:
            await self._over
        finally:
            await self._cancel()

    async def _open(self, offers: Next) -> None:
        """Schedules each session, at most `AHEAD` before their time."""
        while (offer := await offers()) is not None:
            due = offer.due or 0.0
            if due >= self._window.end:
                self._feeding = False
                self._check()
            await self._room.acquire()
            self._waiting += 1
            self._alarm.at(self._start + due, partial(self._begin, offer, due))
        self._feeding, self._dry = False, True

    def _begin(self, offer: ArrivalOffer, due: float) -> None:
        if self._closing:
            return
        self._owe(due)
        self._waiting -= 1
        self._room.release()
        self._spawn(self._session(offer, due))

    async def _slot(self, due: float, offers: Next) -> None:
        self._owe(due)
        pause = PAUSE_S
        await self._alarm.until(self._start + due)
        while (offer := await offers()) is not None:
            due, well = await self._session(offer, due)
            if well:
                pause = PAUSE_S
            else:  # do not flood a server that refuses requests at once
                due, pause = due + pause, min(2 * pause, MAX_PAUSE_S)
            self._owe(due)
            if self._complete():
                return
            await self._alarm.until(self._start + due)
        self._settle(due)
        self._dry = True
        if self.dry_s is None:
            self.dry_s = time.monotonic() - self._start

    async def _session(self, offer: ArrivalOffer, due: float) -> tuple[float, bool]:
        """Runs all turns of a session; each is due when the previous one has ended and its think time has passed.
        Returns the time of the end, and whether all turns succeeded.

        Due times are seconds from the start. The first turn was counted as owed by the caller.
        """
        session, history, well = offer.session, list[Message](), True
        for i, turn in enumerate(session.turns):
            await self._alarm.until(self._start + due)
            if self._closing or self._complete():  # a request that will be cut off would only leave work to the server
                break
            record = LoadRecord(session.id, i, due, self._window.holds(due),
                                expected_input_tokens=turn.input_tokens, max_tokens=turn.max_tokens)
            answer = StreamedAnswer(record, self._client.stream)
            await self._ask(answer, self._client.encode(turn, history))
            self._settle(due)
            due = due if record.ended is None else record.ended
            well = record.failure is None
            if not well or i + 1 == len(session.turns):
                break
            history += turn.messages
            history += session.replies[i] if session.replies is not None else [answer.message()]
            due += session.turns[i + 1].think_s
            self._owe(due)
        return due, well

    async def _ask(self, answer: StreamedAnswer, payload: bytes) -> None:
        record = answer.record
        self._in_flight.add(answer)
        try:
            await self._client.ask(payload, answer)
        finally:
            self._in_flight.discard(answer)
            if self._closing and not self._in_flight:
                self.stop()
            record.count_from(self._start)
            if record.output_tokens is None and record.failure is None:
                record.text = answer.text()
            self._emit(record)

    def _owe(self, due: float) -> None:
        self._owed += self._window.holds(due)

    def _settle(self, due: float) -> None:
        """Counts one measured request as ended. A next turn or session that follows must be counted as owed before this
        call, which checks for the end."""
        self._owed -= self._window.holds(due)
        asyncio.get_running_loop().call_soon(self._check)

    def _end(self) -> None:
        self._past_end = True
        self._mark_cpu()
        self._check()

    def _mark_cpu(self) -> None:
        self._marks.append((time.process_time(), time.monotonic()))

    def _complete(self) -> bool:
        """Returns whether no measured request is in flight or still to come."""
        return self._past_end and not self._owed and not self._feeding

    def _check(self) -> None:
        if not self._complete() or self._closing:
            return
        self._closing = True
        if self._in_flight and self._window.drain:
            self._alarm.at(time.monotonic() + self._window.drain, self.stop)
        else:
            self.stop()

    def stop(self) -> None:
        """Ends the run now; requests in flight fail."""
        if not self._past_end:
            self._mark_cpu()
        if not self._over.done():
            self._over.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if self._over.done():
            return
        if not task.cancelled() and (error := task.exception()) is not None:
            self._over.set_exception(error)
        elif self._dry and not self._tasks and not self._waiting:
            self.stop()

    async def _cancel(self) -> None:
        self._alarm.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._client.close()

