"""A guard process between a benchmark and its engine, so that no process of the engine outlives either.

    python -m drut.bench.engines.guard < ORDERS

ORDERS is one line of JSON (`Orders`). The engine runs until standard input ends, which also happens when the benchmark
dies for any reason. Standard output reports the engine's process id, and its exit code when it has ended; standard
error is the engine's log.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from functools import partial

import msgspec
import psutil

from drut.lifetime import adopt_orphans, die_with


class Orders(msgspec.Struct, frozen=True):
    """The command and environment of the engine, and the seconds that it, and then its children, may take to end.
    `pipes`: file descriptors for its standard input and output, in place of nothing and the log."""

    argv: list[str]
    env: dict[str, str]
    patience_s: float
    children_s: float
    pipes: tuple[int, int] | None = None


class GuardMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the guard's standard output: the engine's process id, the reason why it could not start, or its exit
    code."""

    pid: int | None = None
    why: str | None = None
    code: int | None = None


def main() -> None:
    """Starts the engine, waits for the end of standard input, then ends the engine and all its descendants."""
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ended = _children_pipe()
    stdin, stdout = orders.pipes or (subprocess.DEVNULL, sys.stderr)
    try:
        engine = subprocess.Popen(orders.argv, env=orders.env, stdin=stdin, stdout=stdout,
                                  start_new_session=True, preexec_fn=partial(die_with, os.getpid()))
    except OSError as error:
        _send(GuardMessage(why=f"{error.strerror}: {orders.argv[0]}"))
        return
    for pipe in orders.pipes or ():  # else the ends of these pipes would never be seen
        os.close(pipe)
    _send(GuardMessage(pid=engine.pid))
    try:
        while ended in select.select([sys.stdin, ended], [], [])[0]:
            os.read(ended, 4096)
            if _reap(engine):
                _send(GuardMessage(code=engine.returncode))
    finally:
        _end(engine, orders)


def _children_pipe() -> int:
    """Returns a pipe that becomes readable when a child has ended, so that waiting takes no CPU time from the
    engine."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _reap(engine: subprocess.Popen[bytes]) -> bool:
    """Reaps all children that have ended, adopted ones too. Returns whether the engine was among them."""
    was = engine.returncode
    with contextlib.suppress(ChildProcessError):
        while (pid_status := os.waitpid(-1, os.WNOHANG))[0]:
            if pid_status[0] == engine.pid:
                engine.returncode = os.waitstatus_to_exitcode(pid_status[1])
    return was is None and engine.returncode is not None


def _end(engine: subprocess.Popen[bytes], orders: Orders) -> None:
    """Sends SIGTERM to the engine, so that it can end its children, then SIGKILL to the rest."""
    _reap(engine)
    end = time.monotonic()
    if engine.returncode is None:
        os.kill(engine.pid, signal.SIGTERM)
        for process in _members():  # a stopped process does not handle SIGTERM
            with contextlib.suppress(psutil.Error):
                process.resume()
        while not _reap(engine) and time.monotonic() < end + orders.patience_s:
            time.sleep(0.02)
    end = time.monotonic() + (0.0 if engine.returncode is None else orders.children_s)
    while members := _members():
        if time.monotonic() >= end:
            for process in members:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(0.02)
        _reap(engine)


def _members() -> list[psutil.Process]:
    """Returns the descendants that have not ended."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _send(message: GuardMessage) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
