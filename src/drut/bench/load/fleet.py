"""The parent's side of a run: starts client processes, distributes sessions, collects records."""

from __future__ import annotations

import asyncio
import math
import time
from bisect import insort
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from drut.bench.load.client import Target
from drut.bench.load.halt import Halt
from drut.bench.load.process import Process
from drut.bench.load.record import LoadRecord
from drut.bench.load.schedule import Schedule
from drut.bench.load.wire import ArrivalOffer, MeasureWindow, NoMore, WorkerJob, WorkerStart, put
from drut.bench.work import Session
from drut.errors import DrutError, RequestError
from drut.machine import usable_cpus

LEAD_S = 0.2  # from the last preparation to the start of the load
READY_S = 60.0
AHEAD = 64  # sessions made ahead for a worker, in addition to those in its pipe
RATE_EACH, SLOTS_EACH = 200.0, 128  # maximum for one client process, so that it uses far less than one CPU
BATCH, BATCH_S = 512, 0.05  # maximum of sessions made at a time, off the event loop, and of the seconds for that


class OpenLoop(msgspec.Struct, frozen=True):
    """Sessions arrive by a schedule, or by the times of the workload's trace (`Session.at_s`) if it is None."""

    schedule: Schedule | None


class ClosedLoop(msgspec.Struct, frozen=True):
    """A number of users; each begins the next session when the previous one has ended."""

    concurrency: int

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise RequestError(f"the concurrency must be at least 1, not {self.concurrency}")


class LoadPlan(msgspec.Struct, frozen=True):
    """The parameters of a run, without its sessions."""

    target: Target
    window: MeasureWindow
    loop: OpenLoop | ClosedLoop
    workers: int = 1


class LoadProgress(msgspec.Struct):
    """The progress of a run. Seconds count from its start; `ttft_s` is the median TTFT so far."""

    elapsed_s: float = 0.0
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    ttft_s: float | None = None


class LoadResult(msgspec.Struct):
    """The results of a run. `window` ends early if the workload did. `cpu` is the CPU use of each client process within
    the window, from 0 to 1. `behind` counts sessions of the window that were not made in time. `halted` is the reason
    for an early end, else None. `at_once`: all sessions were due at time 0."""

    records: list[LoadRecord]
    window: MeasureWindow
    cpu: list[float]
    behind: bool
    started_at: float  # seconds of the Unix clock
    halted: str | None = None
    at_once: bool = False


def workers_for(loop: OpenLoop | ClosedLoop, requests: int | None = None) -> int:
    """Returns the number of client processes that such a load is likely to need, at most the number of CPUs.
    `requests`: their number, if the load ends with it."""
    if isinstance(loop, ClosedLoop):
        wanted = loop.concurrency / SLOTS_EACH
    elif _at_once(loop):
        wanted = (requests or math.inf) / SLOTS_EACH
    elif loop.schedule is not None:
        wanted = max(loop.schedule.rate.start, loop.schedule.rate.end) / RATE_EACH
    else:
        wanted = 1.0
    return max(1, math.ceil(min(wanted, len(usable_cpus()))))


async def run_load(plan: LoadPlan, sessions: Iterator[Session],
                   on_progress: Callable[[LoadProgress], None] | None = None, halt: Halt | None = None) -> LoadResult:
    """Runs the load. `on_progress` receives the progress about four times a second; `halt` may end the run early.
    Raises DrutError if the server cannot be reached at the start, or if a client process ends."""
    halt = halt or Halt()
    workers: list[Process] = []
    tasks: list[asyncio.Task[None]] = []
    first = _FirstTokens()
    try:
        for job in _jobs(plan):
            workers.append(await Process.start(job))
        await _all_ready(workers)
        feed = _Feed(plan, sessions, workers)
        await feed.make_first()
        start, started_at = time.monotonic() + LEAD_S, time.time() + LEAD_S
        for worker in workers:
            put(worker.stdin, WorkerStart(start))
        tasks = [asyncio.create_task(feed.run())]
        listening = [asyncio.create_task(worker.listen()) for worker in workers]
        tasks += listening
        while not all(task.done() for task in listening):
            await asyncio.wait(tasks, timeout=0.25, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
            progress = _progress(workers, time.monotonic() - start, first)
            if on_progress is not None:
                on_progress(progress)
            if halt.look(progress.elapsed_s, progress.done, progress.failed, workers):
                break
    finally:
        for task in tasks:
            task.cancel()
        for worker in workers:
            await worker.end()
    return _gather(plan, workers, feed, started_at, halt)


async def _all_ready(workers: list[Process]) -> None:
    try:
        async with asyncio.timeout(READY_S):
            await asyncio.gather(*(worker.ready() for worker in workers))
    except TimeoutError as error:
        raise DrutError(f"the client processes were not ready within {READY_S:.0f} s") from error


class _Feed:
    """Makes sessions, sets their times, and distributes them: round-robin in an open loop, and in a closed loop to the
    process with room. That room is small, so that the end of a workload comes at the same time for all processes."""

    def __init__(self, plan: LoadPlan, sessions: Iterator[Session], workers: list[Process]) -> None:
        self._plan, self._workers, self._sessions = plan, workers, sessions
        self._times = plan.loop.schedule.times() if isinstance(plan.loop, OpenLoop) and plan.loop.schedule else None
        self._first: list[ArrivalOffer] = []
        self.exhausted = False
        queues = len(workers) if isinstance(plan.loop, OpenLoop) else 1
        self._queues: list[asyncio.Queue[ArrivalOffer | None]] = [asyncio.Queue(AHEAD) for _ in range(queues)]
        self.last_due: float | None = None  # of the last session that was sent
        self.dry = False  # the workload has ended

    async def make_first(self) -> None:
        """Makes the first sessions before the clock starts. Raises the errors of the workload."""
        want = AHEAD * len(self._workers)
        if isinstance(self._plan.loop, ClosedLoop):
            want = max(want, 2 * self._plan.loop.concurrency)
        self._first = await asyncio.to_thread(self._make, want)
        if not self._first:
            raise RequestError("the workload has no sessions" if self.dry else
                               "no session of the workload is due before the end of the run")

    async def run(self) -> None:
        """Runs until the end of the workload or of its time."""
        pipes = [asyncio.create_task(self._pipe(worker, self._queues[i % len(self._queues)]))
                 for i, worker in enumerate(self._workers)]
        try:
            count, batch = 0, self._first
            while batch:
                for offer in batch:
                    await self._queues[count % len(self._queues)].put(offer)
                    self.last_due = offer.due
                    count += 1
                batch = await asyncio.to_thread(self._make, BATCH, BATCH_S)
            for i in range(len(self._workers)):
                await self._queues[i % len(self._queues)].put(None)
            await asyncio.gather(*pipes)
        finally:
            for pipe in pipes:
                pipe.cancel()

    def _make(self, count: int, most_s: float = math.inf) -> list[ArrivalOffer]:
        """Returns the next sessions, at least one; none after the end of the workload or the run."""
        offers: list[ArrivalOffer] = []
        window, until = self._plan.window, time.monotonic() + most_s
        while len(offers) < count and not self.exhausted and not (offers and time.monotonic() > until):
            session = next(self._sessions, None)
            if session is None:
                self.exhausted = self.dry = True
                break
            due = self._due(session)
            if due is not None and due >= window.end + window.grace:
                self.exhausted = True
                break
            offers.append(ArrivalOffer(session, due))
        return offers

    def _due(self, session: Session) -> float | None:
        if isinstance(self._plan.loop, ClosedLoop):
            return None
        if self._times is not None:
            return next(self._times)
        if session.at_s is None or not session.at_s >= 0:
            raise RequestError(f"session {session.id} has no arrival time, which the replay of a trace needs")
        return session.at_s

    async def _pipe(self, worker: Process, queue: asyncio.Queue[ArrivalOffer | None]) -> None:
        with suppress(ConnectionError):  # `listen` notices the end of the process
            while True:
                await worker.room()
                if (offer := await queue.get()) is None:
                    break
                worker.offer(offer)
                await worker.stdin.drain()
            put(worker.stdin, NoMore())
            await worker.stdin.drain()


def _at_once(loop: OpenLoop | ClosedLoop) -> bool:
    return isinstance(loop, OpenLoop) and loop.schedule is not None and loop.schedule.rate.at_once


def _jobs(plan: LoadPlan) -> list[WorkerJob]:
    """Returns the job of each worker. The slots of a closed loop begin one after the other over the first half of the
    warm-up, so that their prompts do not coincide again and again."""
    n = plan.workers
    if isinstance(plan.loop, OpenLoop):
        return [WorkerJob(plan.target, plan.window)] * n
    step = plan.window.begin / 2 / plan.loop.concurrency
    staggers = [i * step for i in range(plan.loop.concurrency)]
    return [WorkerJob(plan.target, plan.window, staggers[i::n]) for i in range(n)]


class _FirstTokens:
    """The TTFT of all requests so far, in order of size; each record is looked at once."""

    def __init__(self) -> None:
        self._seen: dict[Process, int] = {}
        self._sorted: list[float] = []

    def median(self, workers: list[Process]) -> float | None:
        """Returns the median in seconds."""
        for worker in workers:
            for record in worker.records[self._seen.get(worker, 0):]:
                if record.arrivals and record.failure is None and record.streamed:
                    insort(self._sorted, record.arrivals[0] - record.scheduled)
            self._seen[worker] = len(worker.records)
        return self._sorted[len(self._sorted) // 2] if self._sorted else None


def _progress(workers: list[Process], elapsed_s: float, first: _FirstTokens) -> LoadProgress:
    return LoadProgress(elapsed_s, sum(w.in_flight for w in workers), sum(len(w.records) for w in workers),
                        sum(w.failed for w in workers), first.median(workers))


def _gather(plan: LoadPlan, workers: list[Process], feed: _Feed, started_at: float, halt: Halt) -> LoadResult:
    window, records = plan.window, [record for worker in workers for record in worker.records]
    last_words = [worker.done for worker in workers if worker.done is not None]
    if window.endless:
        dry = math.nextafter(max((r.ended for r in records if r.ended is not None), default=0.0), math.inf)
    elif isinstance(plan.loop, OpenLoop):
        dry = math.nextafter(feed.last_due, math.inf) if feed.dry and feed.last_due is not None else math.inf
    else:
        dry = min((done.dry_s for done in last_words if done.dry_s is not None), default=math.inf)
    end = max(min(window.end, dry, math.inf if halt.at_s is None else halt.at_s), window.begin)
    behind = halt.why is None and not feed.exhausted and feed.last_due is not None and feed.last_due < window.end
    ended = MeasureWindow(window.begin, end, window.grace)
    for record in records:
        record.counted = ended.holds(record.scheduled)
    if isinstance(plan.loop, ClosedLoop) and window.drain and not any(record.counted for record in records):
        for record in records:
            record.counted = ended.spanned(record.scheduled, record.ended)
    records.sort(key=lambda record: record.scheduled)
    return LoadResult(records=records, window=ended, cpu=[done.cpu for done in last_words], behind=behind,
                      started_at=started_at, halted=halt.why, at_once=_at_once(plan.loop))

