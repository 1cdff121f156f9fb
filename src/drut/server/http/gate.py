"""Limits of open connections: in total, so that the process never runs out of open files, and per client address."""

from __future__ import annotations

import resource
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from drut.errors import RequestError
from drut.server.config import ServerConfig

RESERVE = 64  # open files for all but connections: the model, the engine, logs, libraries
MAX_CONNECTIONS = 4096  # default, if the limit of open files allows it
MAX_FILES = 1 << 16
MAX_CLOSING = 256  # refused connections that wait for their error to be read; further ones are aborted at once
NETWORK_BITS = 64  # of an IPv6 address: a client that has one address of such a network has all of them


def raise_open_files() -> None:
    """Raises this process's soft limit of open files to its hard limit, at most MAX_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def with_connections(config: ServerConfig) -> ServerConfig:
    """Returns `config` with `max_connections` set. RequestError for more than the limit of open files allows."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = MAX_FILES if files == resource.RLIM_INFINITY else files
    room = (files - RESERVE) * 4 // 5  # a fifth is for refused connections that are closing
    if room < 1:
        raise RequestError(f"a limit of {files} open files is too small for a server; at least {RESERVE + 2} are "
                           "needed (ulimit -n)")
    if config.max_connections is not None and config.max_connections > room:
        raise RequestError(f"--max-connections {config.max_connections} is more than the limit of {files} open files "
                           f"allows, which is {room} (ulimit -n)")
    return replace(config, max_connections=config.max_connections or min(MAX_CONNECTIONS, room))


class ConnectionGate:
    """Counts connections, in total and per client. Loopback addresses have no limit per client: a local proxy connects
    for all of its clients."""

    def __init__(self, most: int, most_per_client: int) -> None:
        self._most, self._most_per_client = most, most_per_client
        self._by_client: Counter[str] = Counter()
        self.open = 0
        self.closing, self.max_closing = 0, min(MAX_CLOSING, most // 4)  # connections refused and not closed yet
        self.refused: Counter[str] = Counter(dict.fromkeys(("total", "address"), 0))

    def enter(self, address: str) -> str:
        """Counts a connection from `address` and returns "", or returns why it is refused. `leave` follows in the first
        case only."""
        client, capped = _client(address)
        if self.open >= self._most:
            self.refused["total"] += 1
            return f"{self.open} connections are open, which is the maximum (--max-connections)"
        if capped and self._by_client[client] >= self._most_per_client:
            self.refused["address"] += 1
            return (f"{self._most_per_client} connections from your address are open, which is the maximum "
                    "(--max-connections-per-address)")
        self.open += 1
        self._by_client[client] += 1
        return ""

    def leave(self, address: str) -> None:
        """Counts a connection as closed that `enter` has admitted."""
        client, _ = _client(address)
        self.open -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


def _client(address: str) -> tuple[str, bool]:
    """Returns the client that an address belongs to, and whether the limit per client applies to it."""
    try:
        parsed: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return address, False  # a socket without addresses
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        elif not parsed.is_loopback:
            return str(int(parsed) >> NETWORK_BITS), True
    return str(parsed), not parsed.is_loopback
