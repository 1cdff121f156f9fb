"""Runs an engine's process and waits until it serves."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from drut.bench.address import Address, shown
from drut.bench.engines.engine import CannotRunError, EngineFailedError, Launch
from drut.bench.engines.guarded import Guarded, tail
from drut.bench.engines.ports import check_free, free_port, listener, named
from drut.bench.engines.ready import PROBE_S, serves
from drut.bench.engines.tree import Memory

__all__ = ["Memory", "Running", "free_port", "start"]

PATIENCE_S, CHILDREN_S = 15.0, 3.0  # for an engine to end after SIGTERM, and for its children to follow


class Running:
    """A running engine, until the end of `with` or `stop`. A server that already ran has no `pid` and is left
    unchanged: `suspend`, `resume` and `stop` do nothing, `memory` and `cpu_s` are None."""

    def __init__(self, launch: Launch, log: Path, process: Guarded | None = None) -> None:
        self.launch, self.url, self.log = launch, launch.url, log
        self.pid = None if process is None else process.pid
        self.ready_s = 0.0
        self._process = process

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
                 ) -> None:
        self.stop()

    def alive(self) -> bool:
        """Returns whether the engine's first process runs or is suspended; for a server that already ran: whether it
        answers."""
        return serves(self.launch, PROBE_S) if self._process is None else self._process.alive()

    def how_it_ended(self) -> str:
        """Describes the end of the engine for people, with the last lines of its log; call it if `alive` is False."""
        return "it does not answer" if self._process is None else self._process.how_it_ended()

    def suspend(self) -> None:
        """Suspends all its processes, so that they take no CPU time from another engine."""
        if self._process is not None:
            self._process.tree.suspend()

    def resume(self) -> None:
        """Resumes its processes."""
        if self._process is not None:
            self._process.tree.resume()

    def memory(self) -> Memory | None:
        """Returns the present memory; the peak is since the start."""
        return None if self._process is None else self._process.tree.memory()

    def cpu_s(self) -> float | None:
        """Returns the CPU seconds of all its processes since the start, including ended ones."""
        return None if self._process is None else self._process.tree.cpu_s()

    def pids(self) -> set[int]:
        """Returns the ids of all its processes."""
        return set() if self._process is None else self._process.tree.pids()

    def stop(self) -> None:
        """Sends SIGTERM, waits, sends SIGKILL to the rest; returns when all processes have ended."""
        if self._process is not None:
            self._process.stop()


def start(launch: Launch, log_path: Path, *, timeout_s: float | None = None) -> Running:
    """Starts an engine and returns it once it serves. Its output goes to the file `log_path`.

    `timeout_s`: maximum seconds until then, `launch.ready_timeout_s` if None. Raises CannotRunError if the port is in
    use or the program does not exist, EngineFailedError if it ends or is not ready in time.
    """
    if not launch.argv:
        if not serves(launch, PROBE_S):
            raise CannotRunError(f"no server answers at {shown(Address(launch.url).whole(launch.ready))}")
        return Running(launch, log_path)
    check_free(_port(launch))
    process = Guarded(launch.argv, launch.env, log_path, patience_s=PATIENCE_S, children_s=CHILDREN_S)
    since = time.monotonic()
    try:
        _wait(process, launch, launch.ready_timeout_s if timeout_s is None else timeout_s)
    except BaseException:
        process.stop()
        raise
    running = Running(launch, log_path, process)
    running.ready_s = time.monotonic() - since
    return running


def _wait(process: Guarded, launch: Launch, limit_s: float) -> None:
    until, pause = time.monotonic() + limit_s, 0.02
    while True:
        if not process.alive():
            raise EngineFailedError(process.how_it_ended())
        if serves(launch, until - time.monotonic()):
            break
        if time.monotonic() > until:
            raise EngineFailedError(f"it was not ready within {limit_s:g} s; {tail(process.log)}")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.25)
    port = _port(launch)
    owner = listener(port)
    if owner is not None and owner not in process.tree.pids():
        raise EngineFailedError(f"port {port} was taken by {named(owner)} while it started; {tail(process.log)}")


def _port(launch: Launch) -> int:
    return urlsplit(launch.url).port or 80
