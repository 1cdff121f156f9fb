"""An engine's process: started, waited for until it serves, held still, weighed, and ended with all that came of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import msgspec
import psutil

from drut.bench.address import Address, shown
from drut.bench.engines.engine import CannotRunError, EngineFailedError, Launch
from drut.bench.engines.guard import Orders, Told
from drut.bench.engines.ports import check_free, free_port, listener, named
from drut.bench.engines.ready import PROBE_S, serves
from drut.bench.engines.tree import Memory, Tree

__all__ = ["Memory", "Running", "free_port", "start"]

PATIENCE_S, CHILDREN_S = 15.0, 3.0  # for an engine to end when it is asked to, and for its children to follow
# What is set for the benchmark, and would change an engine.
_NOT_THEIRS = ("OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "LD_PRELOAD", "DRUT_ISA", "DRUT_THREADS")
_OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class Running:
    """An engine that serves, until the end of `with` or `stop`. A server that ran already has no `pid`, and is left as
    it is: `suspend`, `resume` and `stop` do nothing, `memory` and `cpu_s` are None."""

    def __init__(self, launch: Launch, log: Path, guard: subprocess.Popen[bytes] | None = None,
                 pid: int | None = None) -> None:
        self.launch, self.url, self.log, self.pid = launch, launch.url, log, pid
        self.ready_s = 0.0
        self._guard = guard
        self._tree = None if guard is None else Tree(guard.pid)
        self._main = _process(pid)
        self._code: int | None = None

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
                 ) -> None:
        self.stop()

    def alive(self) -> bool:
        """The engine's first process runs, or is held; of a server that ran already: it answers."""
        return _runs(self._main) if self.launch.argv else serves(self.launch, PROBE_S)

    def how_it_ended(self) -> str:
        """For people, with the last lines of its log; call it where `alive` is False."""
        code = self._exit_code()
        how = "it ended" if code is None else f"it ended by {_signal_name(-code)}" if code < 0 else \
            f"it ended with exit code {code}"
        return f"{how}; {tail(self.log)}"

    def suspend(self) -> None:
        """Hold all its processes, so that they take no time from another engine."""
        if self._tree is not None:
            self._tree.suspend()

    def resume(self) -> None:
        """Let them run on."""
        if self._tree is not None:
            self._tree.resume()

    def memory(self) -> Memory | None:
        """As it is now; the peak is since the start."""
        return None if self._tree is None else self._tree.memory()

    def cpu_s(self) -> float | None:
        """CPU seconds of all its processes since the start, those that are over included."""
        return None if self._tree is None else self._tree.cpu_s()

    def pids(self) -> set[int]:
        """Of all its processes."""
        return set() if self._tree is None else {process.pid for process in self._tree.members()}

    def stop(self) -> None:
        """SIGTERM, time to end, SIGKILL for what is left; returns when nothing of it is there any more."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        members = self._tree.members() if self._tree is not None else []
        self._tree = None
        with contextlib.suppress(OSError):
            guard.stdin.close()
        try:
            guard.wait(PATIENCE_S + CHILDREN_S + 10)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        for process in members:  # nothing, unless somebody killed the guard
            with contextlib.suppress(psutil.Error):
                process.kill()
        if guard.stdout:
            guard.stdout.close()

    def _exit_code(self) -> int | None:
        if self._code is None and self._guard is not None and self._guard.stdout is not None:
            line = self._guard.stdout.readline()
            self._code = msgspec.json.decode(line, type=Told).code if line else None
        return self._code


def start(launch: Launch, log_path: Path, *, timeout_s: float | None = None) -> Running:
    """The engine, once it serves. All it writes is in the file `log_path`.

    `timeout_s`: the most seconds until then, `launch.ready_timeout_s` where None. Raises CannotRunError where the port
    is in use or the program is not there, EngineFailedError where it ends or is not ready in time.
    """
    if not launch.argv:
        if not serves(launch, PROBE_S):
            raise CannotRunError(f"no server answers at {shown(Address(launch.url).whole(launch.ready))}")
        return Running(launch, log_path)
    check_free(_port(launch))
    guard = _start_guard(launch, log_path)
    assert guard.stdout is not None
    line = guard.stdout.readline()
    since = time.monotonic()
    told = msgspec.json.decode(line, type=Told) if line else Told(why="the guard of its process did not start")
    running = Running(launch, log_path, guard, told.pid)
    try:
        if told.pid is None:
            raise CannotRunError(told.why or "it did not start")
        _wait(running, launch.ready_timeout_s if timeout_s is None else timeout_s)
    except BaseException:
        running.stop()
        raise
    running.ready_s = time.monotonic() - since
    return running


def tail(log: Path, lines: int = 12) -> str:
    """The end of a log for a message."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (64 << 10)))
            text = file.read().decode(errors="replace")
    except OSError:
        text = ""
    last = [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]
    return "\n    ".join([f"the end of {log.name}:", *last]) if last else f"{log.name} is empty"


def _start_guard(launch: Launch, log_path: Path) -> subprocess.Popen[bytes]:
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("wb") as log:
        guard = subprocess.Popen([sys.executable, "-m", "drut.bench.engines.guard"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    assert guard.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # told by what it does not say
        orders = Orders(list(launch.argv), environment(launch), PATIENCE_S, CHILDREN_S)
        guard.stdin.write(msgspec.json.encode(orders) + b"\n")
        guard.stdin.flush()
    return guard


def environment(launch: Launch, ours: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the engine sees: `ours` (this process's) without what is set for us alone, and what its launch sets."""
    ours = os.environ if ours is None else ours
    out = _NOT_THEIRS if launch.argv[0] == sys.executable else (*_NOT_THEIRS, *_OUR_PYTHON)
    return {**{name: value for name, value in ours.items() if name not in out}, **launch.env}


def _wait(running: Running, limit_s: float) -> None:
    until, pause = time.monotonic() + limit_s, 0.02
    while True:
        if not running.alive():
            raise EngineFailedError(running.how_it_ended())
        if serves(running.launch, until - time.monotonic()):
            break
        if time.monotonic() > until:
            raise EngineFailedError(f"it was not ready within {limit_s:g} s; {tail(running.log)}")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.25)
    port = _port(running.launch)
    owner = listener(port)
    if owner is not None and owner not in running.pids():
        raise EngineFailedError(f"port {port} was taken by {named(owner)} while it started; {tail(running.log)}")


def _port(launch: Launch) -> int:
    return urlsplit(launch.url).port or 80


def _process(pid: int | None) -> psutil.Process | None:
    try:
        return None if pid is None else psutil.Process(pid)
    except psutil.Error:
        return None


def _runs(process: psutil.Process | None) -> bool:
    try:
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
