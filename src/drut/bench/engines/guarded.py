"""A process under a guard: starts it, suspends it, measures its memory, and ends it with all descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from drut.bench.engines.engine import CannotRunError
from drut.bench.engines.guard import GuardMessage, Orders
from drut.bench.engines.tree import Tree

# Variables set for the benchmark that would change an engine.
_NOT_THEIRS = ("OPENBLAS_CORETYPE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "LD_PRELOAD", "DRUT_ISA", "DRUT_THREADS")
_OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class Guarded:
    """Runs `argv` with the environment `environment(argv, env)`, with standard error in the file `log`.

    The process has `patience_s` seconds to end after SIGTERM, and then its children have `children_s`. `pipes`: file
    descriptors for its standard input and output, which the process then owns; None for none. `prepare` runs in the
    guard before the process starts, which inherits its effects. Raises CannotRunError if the program does not exist.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path, *, patience_s: float, children_s: float,
                 pipes: tuple[int, int] | None = None, cwd: Path | None = None,
                 prepare: Callable[[], None] | None = None) -> None:
        self.log = log
        self._limit_s = patience_s + children_s + 10
        self._code: int | None = None
        self._ended = False
        orders = Orders(list(argv), environment(argv, env), patience_s, children_s, pipes)
        self._guard = _start(orders, log, cwd, prepare)
        self.tree = Tree(self._guard.pid)
        message = self._receive() or GuardMessage(why="the guard of its process did not start")
        if message.pid is None:
            self.stop()
            raise CannotRunError(message.why or "it did not start")
        self.pid = message.pid
        self._main = _process(message.pid)

    def alive(self) -> bool:
        """Returns whether the process runs or is suspended."""
        try:
            return self._main is not None and self._main.is_running() and \
                self._main.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def code(self, timeout_s: float = 0.0) -> int | None:
        """Returns the exit code, after waiting up to `timeout_s`; None if the process runs, or if its guard was
        killed."""
        end = time.monotonic() + timeout_s
        while self.alive() and time.monotonic() < end:
            time.sleep(0.01)
        if self._code is None and not self.alive() and not self._ended:
            message = self._receive()
            self._code = None if message is None else message.code
        return self._code

    def how_it_ended(self) -> str:
        """Describes the end of the process for people, with the last lines of its log; call it if `alive` is False."""
        code = self.code()
        how = "it ended" if code is None else f"it ended by {_signal_name(-code)}" if code < 0 else \
            f"it ended with exit code {code}"
        return f"{how}; {tail(self.log)}"

    def stop(self) -> None:
        """Sends SIGTERM, waits, sends SIGKILL to the rest; returns when all processes have ended."""
        if self._ended:
            return
        self._ended = True
        guard, members = self._guard, self.tree.members()
        assert guard.stdin is not None
        assert guard.stdout is not None
        with contextlib.suppress(OSError):
            guard.stdin.close()
        try:
            guard.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        for process in members:  # none, unless the guard was killed
            with contextlib.suppress(psutil.Error):
                process.kill()
        guard.stdout.close()

    def _receive(self) -> GuardMessage | None:
        """Returns the guard's next message."""
        assert self._guard.stdout is not None
        line = self._guard.stdout.readline()
        return msgspec.json.decode(line, type=GuardMessage) if line else None


def environment(argv: Sequence[str], env: Mapping[str, str], ours: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the environment of a process: `ours` (this process's) without the variables set for the benchmark, and
    `env`."""
    ours = os.environ if ours is None else ours
    out = _NOT_THEIRS if argv[0] == sys.executable else (*_NOT_THEIRS, *_OUR_PYTHON)
    return {**{name: value for name, value in ours.items() if name not in out}, **env}


def tail(log: Path, lines: int = 12) -> str:
    """Returns the end of a log for an error text."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (64 << 10)))
            text = file.read().decode(errors="replace")
    except OSError:
        text = ""
    last = [line.rstrip()[:300] for line in text.splitlines() if line.strip()][-lines:]
    return "\n    ".join([f"the end of {log.name}:", *last]) if last else f"{log.name} is empty"


def _start(orders: Orders, log: Path, cwd: Path | None, prepare: Callable[[], None] | None) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        guard = subprocess.Popen([sys.executable, "-m", "drut.bench.engines.guard"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=file, start_new_session=True, cwd=cwd,
                                 pass_fds=orders.pipes or (), preexec_fn=prepare)
    for pipe in orders.pipes or ():
        os.close(pipe)
    assert guard.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # the missing message reports it
        guard.stdin.write(msgspec.json.encode(orders) + b"\n")
        guard.stdin.flush()
    return guard


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
