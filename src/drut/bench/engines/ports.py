"""TCP ports of this machine: a free one, and the process that listens on one."""

from __future__ import annotations

import socket

import psutil

from drut.bench.engines.engine import CannotRunError


def free_port() -> int:
    """Returns a free port of the loopback interface. Another process may take it before it is used."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def check_free(port: int) -> None:
    """Raises CannotRunError, which names the process that has the port."""
    try:
        # Binds as servers do: connections in TIME_WAIT do not count.
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise CannotRunError(f"port {port} is {_by(listener(port)) or error.strerror}") from None


def listener(port: int) -> int | None:
    """Returns the process that listens on a port; None if there is none or it cannot be found."""
    try:
        found = psutil.net_connections("tcp")
    except psutil.Error:  # some systems restrict it to privileged users
        return None
    return next((c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr[1:] == (port,)), None)


def named(pid: int) -> str:
    """Returns the process id and name for people."""
    try:
        return f"PID {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"PID {pid}"


def _by(pid: int | None) -> str:
    return "" if pid is None else f"in use by {named(pid)}"
