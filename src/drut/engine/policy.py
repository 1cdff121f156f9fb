"""Who is admitted next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drut.cache.cache import KvCache
from drut.engine.request import Request
from drut.errors import RequestError


class Policy(Protocol):
    """Orders the waiting requests, best first."""

    def order(self, waiting: Sequence[Request], cache: KvCache) -> list[Request]: ...


class FirstCome:
    """By arrival; a preempted request keeps its place."""

    def order(self, waiting: Sequence[Request], cache: KvCache) -> list[Request]:
        return sorted(waiting, key=lambda r: r.order)


class Priority:
    """By priority, the smaller number first, then by arrival."""

    def order(self, waiting: Sequence[Request], cache: KvCache) -> list[Request]:
        return sorted(waiting, key=lambda r: (r.priority, r.order))


class LongestPrefix:
    """By how much of the request is cached. The oldest goes first once it was passed over often enough, and a long
    queue is taken by arrival: matching every request of it would cost more than it saves."""

    PATIENCE = 64  # times the oldest is passed over
    QUEUE = 128

    def __init__(self) -> None:
        self._oldest = -1
        self._passed = 0

    def order(self, waiting: Sequence[Request], cache: KvCache) -> list[Request]:
        by_arrival = sorted(waiting, key=lambda r: r.order)
        if not by_arrival or len(by_arrival) > self.QUEUE:
            return by_arrival
        oldest = by_arrival[0].order
        self._passed = self._passed + 1 if oldest == self._oldest else 0
        self._oldest = oldest
        if self._passed > self.PATIENCE:
            return by_arrival
        return sorted(by_arrival, key=lambda r: -cache.cached_prefix(r.table.salt, r.tokens))


POLICIES: dict[str, type[FirstCome] | type[Priority] | type[LongestPrefix]] = {
    "fcfs": FirstCome, "priority": Priority, "longest-prefix": LongestPrefix,
}


def make_policy(name: str) -> Policy:
    try:
        return POLICIES[name]()
    except KeyError:
        raise RequestError(f"policy must be one of {', '.join(POLICIES)}, not {name!r}") from None
