"""Runs programs that a model wrote, each in a process of its own: a bound on what they do, and no jail.

A program has a fresh Python without site packages, an empty environment, no input and no output, limits on CPU time,
memory, files and processes, and a time to end by. Where Linux grants namespaces to this user, it also has no network,
sees a read-only file system, and can signal no other process. It can read what this user can read, and it meets the
whole kernel. A program that sets out to forge its own result can: it runs in the process of its tests.
"""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from drut.errors import UnsupportedError
from drut.quality import confine

# The end of a program, which it reaches where nothing was raised and nothing ended it: it reports a random word.
_END = "\nimport os\nos.write({report}, {token!r})\n"
_LONGEST_LINE = 4096
_GRACE_S = 60.0


class Bounds(msgspec.Struct, frozen=True):
    """`cpu_s` ends what computes for ever, `wall_s` what waits for ever; bytes of address space, and of a file."""

    cpu_s: int = 5
    wall_s: int = 30
    memory: int = 1 << 30
    file_bytes: int = 1 << 20


BOUNDS = Bounds()


class Outcome(msgspec.Struct, frozen=True):
    """`lacking`: of network, signals, files and processes, what is not bounded here."""

    passed: bool
    timed_out: bool
    lacking: tuple[str, ...]


def trial(bounds: Bounds = BOUNDS) -> tuple[str, ...]:
    """What is not bounded here. UnsupportedError where not even a program that does nothing can run."""
    outcome = run("", bounds)
    if not outcome.passed:
        raise UnsupportedError(f"programs cannot be run here: an empty one does not end well under {sys.executable}, "
                               "which every user must be able to read where Drut runs as root")
    return outcome.lacking


def run(program: str, bounds: Bounds = BOUNDS) -> Outcome:
    """Whether `program` ran to its end. UnsupportedError where it cannot be bounded; then it was not run."""
    token = secrets.token_bytes(16)
    mine, report = os.pipe()
    with tempfile.TemporaryDirectory(prefix="drut-") as folder, open(mine, "rb", buffering=0):
        try:
            path = Path(folder, "program.py")
            path.write_bytes((program + _END.format(report=report, token=token)).encode(errors="replace"))
            path.chmod(0o644)
            Path(folder).chmod(0o755)
            process = _start(folder, report, bounds)
        finally:
            os.close(report)
        said = b""
        try:
            said, timed_out = _read(mine, token, time.monotonic() + bounds.wall_s)
        finally:
            _end(process, supervised=b"signals" not in said.partition(b"\n")[0])
    line, _, rest = said.partition(b"\n")
    if line.startswith(b"!"):
        raise UnsupportedError(f"programs cannot be bounded here: {line[1:].decode()}")
    return Outcome(rest == token, timed_out, tuple(line.decode().split(",")) if line else ())


def _start(folder: str, report: int, bounds: Bounds) -> subprocess.Popen[bytes]:
    limits = (bounds.cpu_s, bounds.wall_s, bounds.memory, bounds.file_bytes)
    command = [sys.executable, "-I", "-S", "-B", confine.__file__, str(report), *map(str, limits), "program.py"]
    return subprocess.Popen(command, cwd=folder, env={}, pass_fds=[report], start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _read(fd: int, token: bytes, deadline: float) -> tuple[bytes, bool]:
    """All that is reported, up to the token or more than there should be; whether the deadline passed first."""
    said, waiter = b"", select.poll()
    waiter.register(fd, select.POLLIN)
    while not said.endswith(b"\n" + token) and len(said) < _LONGEST_LINE:
        if not waiter.poll(max(0.0, deadline - time.monotonic()) * 1000):
            return said, True
        piece = os.read(fd, _LONGEST_LINE)
        if not piece:
            break
        said += piece
    return said, False


def _end(process: subprocess.Popen[bytes], supervised: bool) -> None:
    """Nothing of it is left. In a namespace its supervisor ends the program; killed, that would leave it running."""
    if supervised:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
