"""The roof of this machine for the engine's roofline: read from disk, or measured once while the server is idle."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import suppress

from drut.engine.service.async_engine import AsyncEngine
from drut.engine.service.messages import SetRoof
from drut.errors import DrutError
from drut.home import home
from drut.kernels.native.library import load
from drut.plan import roof as roofs
from drut.plan.peaks import figures
from drut.plan.probe import machine_key
from drut.server.life import Health

log = logging.getLogger("drut.server")

QUIET_S, LOOK_S = 10.0, 1.0


async def compare_with_roof(engine: AsyncEngine, health: Health, threads: int, *, quiet_s: float = QUIET_S) -> None:
    """Sends `engine`, which runs `threads` threads, the roof of this machine. Does nothing without the native library.

    If none is on disk, `drut roof` measures and stores it after `quiet_s` seconds without a step: a measurement that
    competes with requests would be too low and would slow them down.
    """
    library = load()
    if library is None:
        return
    try:
        roof = roofs.kept(home() / roofs.FILE, machine_key(library))
        if roof is None:
            await _quiet(health, quiet_s)
            roof = await measure_apart()
        engine.compare_with(SetRoof(*figures(roof, threads)))
    except (DrutError, OSError) as error:  # OSError: no process or file descriptor is available for the measurement
        log.warning("the share of the roof is not reported: %s", error)


async def _quiet(health: Health, seconds: float) -> None:
    """Returns once no step has run for `seconds`."""
    clock = asyncio.get_running_loop().time
    steps, since = -1, clock()
    while clock() - since < seconds:
        await asyncio.sleep(min(LOOK_S, seconds))
        stats = health.stats
        if stats is None or stats.running or stats.waiting or stats.steps != steps:
            steps, since = -1 if stats is None else stats.steps, clock()


async def measure_apart() -> roofs.Roof:
    """Runs `drut roof` in a process of its own, whose memory is freed at its end. DrutError if it fails."""
    command = (sys.executable, "-m", "drut", "roof", "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, error = await process.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            process.kill()
        raise
    try:
        return roofs.Roof.from_json(json.loads(out))
    except ValueError:
        reason = error.decode(errors="replace").strip().rpartition("\n")[2]
        raise DrutError(f"measuring it failed: {reason or f'code {process.returncode}'}") from None
