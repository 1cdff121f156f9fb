"""How many connections are open: in total, so that the system's open files never run out, and from one address."""

from __future__ import annotations

import resource
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from drut.errors import RequestError
from drut.server.config import ServerConfig

RESERVE = 64  # open files for all but connections: the model, the engine, logs, libraries
MOST = 4096  # connections by default, if the system has files for them
MOST_FILES = 1 << 16
MOST_FAREWELLS = 256  # refused connections that are being told why; those beyond are dropped unheard
NETWORK_BITS = 64  # of an IPv6 address: who has one of these networks has all of its addresses


def raise_open_files() -> None:
    """Lets this process open as many files as the system allows it to, which is often far more than it starts with."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def with_connections(config: ServerConfig) -> ServerConfig:
    """`config` with its cap of connections set. RequestError for more than this process may open files for."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = MOST_FILES if files == resource.RLIM_INFINITY else files
    room = (files - RESERVE) * 4 // 5  # a fifth is for farewells
    if room < 1:
        raise RequestError(f"a limit of {files} open files is too small for a server; at least {RESERVE + 2} are "
                           "needed (ulimit -n)")
    if config.max_connections is not None and config.max_connections > room:
        raise RequestError(f"--max-connections {config.max_connections} is more than the limit of {files} open files "
                           f"leaves room for, which is {room} (ulimit -n)")
    return replace(config, max_connections=config.max_connections or min(MOST, room))


class Gate:
    """Counts connections. Loopback addresses, where a proxy of one's own stands for all its clients, have no cap of
    their own."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._by_client: Counter[str] = Counter()
        self.open = 0
        self.farewells, self.most_farewells = 0, min(MOST_FAREWELLS, most // 4)  # refused and not closed yet
        self.refused: Counter[str] = Counter(dict.fromkeys(("total", "address"), 0))

    def enter(self, address: str) -> str:
        """Lets a connection from `address` in, or says why not; `leave` follows where it was let in."""
        client, capped = _client(address)
        if self.open >= self._most:
            self.refused["total"] += 1
            return f"{self.open} connections are open, which is all this server takes (--max-connections)"
        if capped and self._by_client[client] >= self._most_of_one:
            self.refused["address"] += 1
            return (f"{self._most_of_one} connections from your address are open, which is all it may have "
                    "(--max-connections-per-address)")
        self.open += 1
        self._by_client[client] += 1
        return ""

    def leave(self, address: str) -> None:
        """A connection that was let in is closed."""
        client, _ = _client(address)
        self.open -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


def _client(address: str) -> tuple[str, bool]:
    """Whose address it is, and whether he has a cap of his own."""
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
