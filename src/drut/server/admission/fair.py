"""The waiting requests: fair between keys, by priority and arrival within a key.

Each key has a counter of the tokens it was served; the next request comes from the waiting key with the least. A key
that comes back is lifted to the least counter of those that are active, so that nobody saves up time he did not use.
(Sheng et al., "Fairness in Serving Large Language Models", 2024: virtual token counters.) It is work-conserving: while
anyone waits, somebody is chosen.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

REMEMBERED = 1024  # keys that are not active and ahead of the others


class Waiting(Protocol):
    """What can wait. `order` tells equals apart: the smaller came first."""

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
    """One key's account."""

    served: float = 0.0  # tokens
    active: int = 0  # requests that wait or run
    tokens: int = 0  # of the prompts that wait
    queue: list[W] = field(default_factory=list)  # by rank


class FairQueue(Generic[W]):
    """Waiting requests of many keys. A request is entered, then popped or removed, charged, and left."""

    def __init__(self) -> None:
        self._shares: dict[str, Share[W]] = {}
        self._waiting: dict[str, Share[W]] = {}  # those with a queue
        self._least = 0.0  # counter of the key served last
        self.tokens = 0  # of all prompts that wait
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, item: W) -> None:
        """`item` begins to wait."""
        share = self._share(item.key)
        share.active += 1
        share.tokens += item.tokens
        insort(share.queue, item, key=lambda i: i.rank)
        self._waiting[item.key] = share
        self.tokens += item.tokens
        self._count += 1

    def peek(self) -> W:
        """Who goes next. Somebody must wait."""
        return min(self._waiting.values(), key=lambda share: (share.served, share.queue[0].rank)).queue[0]

    def remove(self, item: W) -> None:
        """`item` no longer waits: it is served, or `leave` follows."""
        share = self._waiting[item.key]
        del share.queue[bisect_left(share.queue, item.rank, key=lambda i: i.rank)]
        share.tokens -= item.tokens
        self.tokens -= item.tokens
        self._count -= 1
        if not share.queue:
            del self._waiting[item.key]
        self._least = max(self._least, share.served)

    def charge(self, key: str, tokens: float) -> None:
        """`key` was served so many tokens; fewer than nothing gives some back."""
        self._shares[key].served += tokens

    def leave(self, key: str) -> None:
        """A request of `key` is over."""
        self._shares[key].active -= 1

    def to_push_out(self, newcomer: W, *, by_tokens: bool) -> W | None:
        """Who should give up a place for `newcomer` where the queue is full: the last one of the key that waits with
        most, if that stays ahead of the newcomer's key even so. None: the newcomer has no better claim."""
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
        """Keys that are not active and have no debt need not be remembered, nor those with the least debt if many."""
        idle = [key for key, share in self._shares.items() if not share.active]
        if len(idle) < REMEMBERED:
            return
        idle.sort(key=lambda key: self._shares[key].served)
        for key in idle[: len(idle) // 2]:
            del self._shares[key]
