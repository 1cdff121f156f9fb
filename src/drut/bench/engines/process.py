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

from drut.bench.engines.engine import CannotRunError, EngineFailedError, Launch
from drut.bench.engines.guard import Orders, Told
from drut.bench.engines.ports import check_free, free_port, listener, named
from drut.bench.engines.ready import PROBE_S, serves

__all__ = ["Memory", "Running", "free_port", "start"]

PATIENCE_S, CHILDREN_S = 15.0, 3.0  # for an engine to end when it is asked to, and for its children to follow
# What is set for the benchmark, and would change an engine.
_NOT_THEIRS = ("OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "LD_PRELOAD", "DRUT_ISA", "DRUT_THREADS")
_OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class Memory(msgspec.Struct, frozen=True):
    """Of all processes of an engine, in MB of 10^6 bytes. Resident pages that several share count for each; `pss_mb`
    counts them once, None where it is not told. `peak_mb` is the sum of each one's highest."""

    resident_mb: float
    peak_mb: float
    pss_mb: float | None = None


class Running:
    """An engine that serves, until the end of `with` or `stop`. A server that ran already has no `pid`, and is left as
    it is: `suspend`, `resume` and `stop` do nothing, `memory` and `cpu_s` are None."""

    def __init__(self, launch: Launch, log: Path, guard: subprocess.Popen[bytes] | None = None,
                 pid: int | None = None) -> None:
        self.launch, self.url, self.log, self.pid = launch, launch.url, log, pid
        self.ready_s = 0.0
        self._guard, self._peak = guard, 0.0
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
        held: set[int] = set()
        while new := [process for process in self._members() if process.pid not in held]:  # one may fork meanwhile
            for process in new:
                held.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.suspend()

    def resume(self) -> None:
        """Let them run on."""
        for process in self._members():
            with contextlib.suppress(psutil.Error):
                process.resume()

    def memory(self) -> Memory | None:
        """As it is now; the peak is since the start."""
        if self._guard is None:
            return None
        resident = peak = pss = 0.0
        whole = True
        for process in self._members():
            with contextlib.suppress(psutil.Error):
                rss = process.memory_info().rss
                resident += rss
                peak += max(rss, _peak_bytes(process.pid))
                try:
                    pss += process.memory_full_info().pss
                except (psutil.Error, AttributeError):
                    whole = False
        self._peak = max(self._peak, peak)
        return Memory(resident / 1e6, self._peak / 1e6, pss / 1e6 if whole else None)

    def cpu_s(self) -> float | None:
        """CPU seconds of all its processes since the start, those that are over included."""
        if self._guard is None:
            return None
        seconds = 0.0
        for process in self._members():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self._guard.pid).cpu_times()
            seconds += times.children_user + times.children_system
        return seconds

    def stop(self) -> None:
        """SIGTERM, time to end, SIGKILL for what is left; returns when nothing of it is there any more."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin is not None
        members = _descendants(guard.pid)
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

    def pids(self) -> set[int]:
        """Of all its processes."""
        return {process.pid for process in self._members()}

    def _members(self) -> list[psutil.Process]:
        return [] if self._guard is None else _descendants(self._guard.pid)

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
            raise CannotRunError(f"no server answers at {launch.url.rstrip('/').removesuffix('/v1')}{launch.ready}")
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


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


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


def _peak_bytes(pid: int) -> int:
    """The kernel's high-water mark of a process; 0 where it tells none."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
