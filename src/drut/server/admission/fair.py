"""The request queue: fair between API keys, by priority and arrival within a key.

Each key has a counter of the tokens it was served; the next request comes from the waiting key with the smallest
counter. The counter of a key that becomes active again is raised to the smallest counter of the active keys, so that no
key accumulates credit while it is idle (Sheng et al., "Fairness in Serving Large Language Models", 2024: virtual token
counters). The queue is work-conserving: while any request waits, one is chosen.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

REMEMBERED = 1024  # idle keys whose counters are kept


class Waiting(Protocol):
    """An item of the queue."""

    @property
    def key(self) -> str: ...
    @property
    def rank(self) -> tuple[int, int]:
        """Priority and order of arrival; the smaller goes first."""
        ...

    @property
    def tokens(self) -> int: ...


W = TypeVar("W", bound=Waiting)


@dataclass
class Share(Generic[W]):
    """The counter and the waiting requests of one key."""

    served: float = 0.0  # tokens
    active: int = 0  # requests that wait or run
    tokens: int = 0  # of the prompts that wait
    queue: list[W] = field(default_factory=list)  # in order of rank


class FairQueue(Generic[W]):
    """Waiting requests of many keys. The calls for a request are `enter`, `remove`, `charge` and `leave`."""

    def __init__(self) -> None:
        self._shares: dict[str, Share[W]] = {}
        self._waiting: dict[str, Share[W]] = {}  # shares with waiting requests
        self._least = 0.0  # counter of the key served last
        self.tokens = 0  # of all prompts that wait
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, item: W) -> None:
        """Adds `item` to the queue."""
        share = self._share(item.key)
        share.active += 1
        share.tokens += item.tokens
        insort(share.queue, item, key=lambda i: i.rank)
        self._waiting[item.key] = share
        self.tokens += item.tokens
        self._count += 1

    def peek(self) -> W:
        """Returns the next item. The queue must not be empty."""
        return min(self._waiting.values(), key=lambda share: (share.served, share.queue[0].rank)).queue[0]

    def remove(self, item: W) -> None:
        """Removes `item` from the queue: it is served next, or `leave` follows."""
        share = self._waiting[item.key]
        del share.queue[bisect_left(share.queue, item.rank, key=lambda i: i.rank)]
        share.tokens -= item.tokens
        self.tokens -= item.tokens
        self._count -= 1
        if not share.queue:
            del self._waiting[item.key]
        self._least = max(self._least, share.served)

    def charge(self, key: str, tokens: float) -> None:
        """Adds `tokens` to the counter of `key`; a negative number is a refund."""
        self._shares[key].served += tokens

    def leave(self, key: str) -> None:
        """Notes that a request of `key` has ended."""
        self._shares[key].active -= 1

    def victim_for(self, newcomer: W, *, by_tokens: bool) -> W | None:
        """Returns the item to evict from a full queue for `newcomer`: the last one of the key with the most waiting.

        None: reject `newcomer`, since its key would then have more waiting than that key.
        """
        def size(share: Share[W]) -> int:
            return share.tokens if by_tokens else len(share.queue)

        mine = self._shares.get(newcomer.key)
        largest = max(self._waiting.values(), key=size, default=None)
        if largest is None or largest is mine:
            return None
        victim = largest.queue[-1]
        gain, loss = (newcomer.tokens, victim.tokens) if by_tokens else (1, 1)
        return victim if size(largest) - loss >= (size(mine) if mine else 0) + gain else None

    def _share(self, key: str) -> Share[W]:
        share = self._shares.get(key)
        if share is None:
            self._forget()
            share = self._shares[key] = Share()
        if not share.active:
            floor = min((s.served for s in self._shares.values() if s.active), default=self._least)
            share.served = max(share.served, floor)
        return share

    def _forget(self) -> None:
        """Drops half of the idle keys, those with the smallest counters, if too many are kept."""
        idle = [key for key, share in self._shares.items() if not share.active]
        if len(idle) < REMEMBERED:
            return
        idle.sort(key=lambda key: self._shares[key].served)
        for key in idle[: len(idle) // 2]:
            del self._shares[key]
