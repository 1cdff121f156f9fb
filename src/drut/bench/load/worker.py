"""A client process: `python -m drut.bench.load.worker`, frames on standard input and output."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from drut.bench.load.client import Client
from drut.bench.load.driver import Driver
from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import (
    ArrivalOffer,
    Beat,
    Broken,
    Done,
    FromWorker,
    NoMore,
    Took,
    WorkerJob,
    WorkerReady,
    WorkerStart,
    put,
    to_worker,
)
from drut.errors import DrutError

BEAT_S = 0.25
READ_BYTES, PIPE_BYTES = 1 << 14, 1 << 18  # buffers for waiting sessions; a single session may be longer


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine on uvloop if it is installed, otherwise on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


async def work() -> None:
    """Receives a job, the start and sessions; sends beats with records, and the last message."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_BYTES)
    with suppress(OSError, AttributeError):
        fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, PIPE_BYTES)  # a parent that is scheduled late must not delay the load
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    writer, closed = await loop.connect_write_pipe(_Closed, os.fdopen(os.dup(1), "wb"))
    writer.set_write_buffer_limits(high=1 << 30)  # if the parent is slow, records wait and requests do not

    def send(message: FromWorker) -> None:
        if not closed.when.done():
            put(writer, message)

    serving = asyncio.create_task(_serve(reader, send))
    closed.when.add_done_callback(lambda _: serving.cancel())  # without a parent there is no reason to load a server
    try:
        await serving
    except DrutError as error:
        send(Broken(str(error)))
    except asyncio.CancelledError:
        return
    writer.close()
    await closed.when  # otherwise the buffered messages would be lost


class _Closed(asyncio.BaseProtocol):
    """Signals that a pipe is closed, with everything written."""

    def __init__(self) -> None:
        self.when: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.when.done():
            self.when.set_result(None)


async def _serve(reader: asyncio.StreamReader, send: Callable[[FromWorker], None]) -> None:
    job = await to_worker(reader)
    if not isinstance(job, WorkerJob):
        raise DrutError("a client process was started without a job")
    client = Client(job.target)
    await client.prepare()
    records: list[LoadRecord] = []
    driver = Driver(client, job.window, records.append)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, driver.stop)
    send(WorkerReady())
    start = await to_worker(reader)
    if not isinstance(start, WorkerStart):
        raise DrutError("a client process was given no start")

    def beat() -> None:
        send(Beat(records.copy(), driver.in_flight))
        records.clear()

    async def beats() -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            beat()

    beating = asyncio.create_task(beats())
    try:
        await driver.run(start.at, _Offers(reader, send), job.stagger)
    finally:
        beating.cancel()
        beat()
    send(Done(driver.cpu, driver.dry_s))


class _Offers:
    """The sessions that the parent sends, for one reader at a time."""

    def __init__(self, reader: asyncio.StreamReader, send: Callable[[FromWorker], None]) -> None:
        self._reader, self._send = reader, send
        self._lock = asyncio.Lock()
        self._over = False

    async def __call__(self) -> ArrivalOffer | None:
        async with self._lock:
            if self._over:
                return None
            message = await to_worker(self._reader)
            if isinstance(message, ArrivalOffer):
                if message.due is None:
                    self._send(Took())
                return message
            if not isinstance(message, NoMore):
                raise DrutError("the parent of a client process has ended")
            self._over = True
            return None


def main() -> None:
    """Raises the limit of connections and reduces the pauses of the garbage collector, then runs the worker."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it and ends this process
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # only closed connections leave cycles
    run_loop(work())


if __name__ == "__main__":
    main()
