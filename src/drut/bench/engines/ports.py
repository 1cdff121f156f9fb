"""TCP ports of this machine: a free one, and who listens on one."""

from __future__ import annotations

import socket

import psutil

from drut.bench.engines.engine import CannotRunError


def free_port() -> int:
    """A port of the loopback that nobody has. It may be taken before it is used."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def check_free(port: int) -> None:
    """Raises CannotRunError, which names who has the port."""
    try:
        # As servers bind: connections of one before that wait for their end do not count.
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise CannotRunError(f"port {port} is {_by(listener(port)) or error.strerror}") from None


def listener(port: int) -> int | None:
    """The process that listens on it; None where there is none or it cannot be told."""
    try:
        found = psutil.net_connections("tcp")
    except psutil.Error:  # not for everybody on every system
        return None
    return next((c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr[1:] == (port,)), None)


def named(pid: int) -> str:
    """The process as a person knows it."""
    try:
        return f"PID {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"PID {pid}"


def _by(pid: int | None) -> str:
    return "" if pid is None else f"in use by {named(pid)}"
