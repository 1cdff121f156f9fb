"""The file by which other programs of this user find a running server: DRUT_HOME/run/PID.json."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from drut.home import home

CLOCK_S = 1.0  # tolerance of start times, which the system rounds


class RunningServer(msgspec.Struct, frozen=True):
    """A server that can answer. `started`: of its process, seconds since the epoch."""

    pid: int
    started: float
    host: str
    model: str
    url: str


@contextlib.contextmanager
def announced(model: str, url: str) -> Iterator[None]:
    """Keeps the file of this process while the context is open; does nothing if the folder cannot be written."""
    pid = os.getpid()
    path = _folder() / f"{pid}.json"
    server = RunningServer(pid, psutil.Process(pid).create_time(), socket.gethostname(), model, url)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(server))
        part.replace(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def running() -> list[RunningServer]:
    """Returns the servers of this machine in order of start; removes files of processes that are gone."""
    found = []
    for path in _folder().glob("*.json"):
        try:
            server = msgspec.json.decode(path.read_bytes(), type=RunningServer)
        except (OSError, msgspec.DecodeError):  # removed in this moment, or damaged
            continue
        if server.host != socket.gethostname():
            continue  # of another container with the same folder
        if _alive(server):
            found.append(server)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return sorted(found, key=lambda server: server.started)


def _alive(server: RunningServer) -> bool:
    try:
        return abs(psutil.Process(server.pid).create_time() - server.started) < CLOCK_S
    except (psutil.Error, ValueError):
        return False


def _folder() -> Path:
    return home() / "run"
