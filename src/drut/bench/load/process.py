"""The parent's view of a client process."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import ArrivalOffer, Beat, Broken, Done, Took, WorkerJob, WorkerReady, from_worker, put
from drut.errors import DrutError

MIN_AHEAD = 8  # maximum of waiting sessions in a process of a closed loop with few slots


class Process:
    """A client process, and the messages it sent."""

    def __init__(self, process: asyncio.subprocess.Process, job: WorkerJob) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout
        self.in_flight = self.failed = 0
        self.records: list[LoadRecord] = []
        self.done: Done | None = None
        self._closed = job.stagger is not None
        self._room = asyncio.Semaphore(max(len(job.stagger or ()), MIN_AHEAD))
        put(self.stdin, job)

    @classmethod
    async def start(cls, job: WorkerJob) -> Process:
        return cls(await asyncio.create_subprocess_exec(
            sys.executable, "-m", "drut.bench.load.worker", stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, limit=1 << 20), job)

    async def ready(self) -> None:
        message = await from_worker(self.stdout)
        if isinstance(message, Broken):
            raise DrutError(message.why)
        if not isinstance(message, WorkerReady):
            raise DrutError("a client process ended before it began")

    async def room(self) -> None:
        """Waits until the process has room for a session. In a closed loop at most one session a slot waits in a
        process, because another process, whose slots are idle, cannot take it."""
        if self._closed:
            await self._room.acquire()

    def offer(self, offer: ArrivalOffer) -> None:
        put(self.stdin, offer)

    async def listen(self) -> None:
        """Reads messages until the last one."""
        while (message := await from_worker(self.stdout)) is not None:
            match message:
                case Beat():
                    self.records += message.records
                    self.failed += sum(record.failure is not None for record in message.records)
                    self.in_flight = message.in_flight
                case Took():
                    self._room.release()
                case Done():
                    self.done = message
                    return
                case Broken():
                    raise DrutError(message.why)
        raise DrutError(f"a client process ended during the run, with exit code {await self.process.wait()}")

    def stop(self) -> None:
        """Ends the load now; requests in flight fail as `unfinished`. The process still sends its last message."""
        if self.done is None:
            with suppress(ProcessLookupError):
                self.process.terminate()

    async def end(self) -> None:
        """Kills the process unless it has ended."""
        if self.done is None:
            with suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()
