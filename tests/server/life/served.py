"""A server without HTTP, for tests of its life: `python -m tests.server.life.served MODEL OPTIONS`.

It opens streams, writes what becomes of each as a JSON line, and ends as a server does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from drut.engine.request.params import FilledParams
from drut.engine.service.async_engine import AsyncEngine
from drut.kernels.native.executable import NativeExecutable
from drut.server.admission import AdmissionControl, QueuedRequest
from drut.server.life import Health, Lifecycle
from tests.server.reading import Reading


def emit(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


async def follow(ticket: Reading) -> None:
    try:
        async for _ in ticket:
            pass
        emit(end=ticket.record.finish_reason)
    except Exception as error:
        emit(end=type(error).__name__, why=str(error))


def hang_after(steps: int, served: threading.Event) -> None:
    """The step after so many never ends, counted from `served` on: the watchdog is at work then."""
    real, left = NativeExecutable.launch, iter(range(steps))

    def launch(self: NativeExecutable, *args: Any) -> Any:
        while served.is_set() and next(left, None) is None:
            time.sleep(0.1)
        return real(self, *args)

    NativeExecutable.launch = launch  # type: ignore[method-assign]


async def main(model: str, options: dict[str, Any]) -> int:
    served = threading.Event()
    if "hang_after" in options:
        hang_after(options["hang_after"], served)
    health = Health()
    emit(ready=health.ready(), alive=health.alive())
    async with AsyncEngine(model, process=options["process"], threads=1, multi_step=1) as engine:
        admission = AdmissionControl(engine)
        life = Lifecycle(engine, admission, health, drain_s=options.get("drain_s", 30),
                         stuck_s=options.get("stuck_s", 60))
        readers = []
        for _ in range(options.get("streams", 3)):
            ticket = Reading(admission, QueuedRequest("hello",
                                                      FilledParams(max_tokens=options["tokens"], ignore_eos=True)))
            with suppress(Exception):
                await anext(ticket)
            readers.append(asyncio.ensure_future(follow(ticket)))
        running = asyncio.ensure_future(life.run())
        await asyncio.sleep(0.1)
        emit(pid=getattr(engine._transport, "pid", None), ready=health.ready())
        served.set()
        if options.get("block_loop"):
            time.sleep(60)
        while not running.done():
            if health.draining or engine.dead:
                emit(ready=health.ready(), alive=health.alive())
                break
            await asyncio.sleep(0.05)
        code = await running
        await asyncio.gather(*readers)
        return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]))))
