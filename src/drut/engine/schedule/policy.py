"""Scheduling policies: the order of the request queue and the choice of preemption victims. A policy changes when a
request is computed, never its tokens."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from drut.cache.cache import KvCache
from drut.engine.request.request import Request
from drut.engine.schedule.reserve import Reserve
from drut.errors import RequestError

Rank = tuple[float, ...]  # the smallest is first


class Policy(ABC):
    """Decides which waiting requests are tried first and which running requests are preempted.

    `bursts`: whether multi-step decoding is allowed, in which steps follow each other without the scheduler.
    """

    bursts = True

    def __init__(self, clock: Callable[[], float] = time.monotonic, aging_s: float = 10.0) -> None:
        """`aging_s`: seconds of waiting that weigh as much as one level of priority, in policies that use it."""
        self.clock, self.aging_s = clock, aging_s

    @abstractmethod
    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        """Returns the waiting requests that may be admitted, best first."""

    def may_join(self, request: Request) -> bool:
        """True if a waiting request may be admitted while others run."""
        return True

    def victim(self, running: Sequence[Request]) -> Request:
        """Returns the preemption victim if pages run out: the latest arrival of the lowest priority.

        So the first request is never preempted and makes progress, and in time every request is first."""
        return max(running, key=lambda r: (r.priority, r.order))

    def victims_for(self, request: Request, running: Sequence[Request], reserve: Reserve) -> list[Request]:
        """Returns running requests that may be preempted to admit `request`, in preemption order. `reserve` estimates
        final lengths."""
        return []

    def preempt_now(self, running: Sequence[Request]) -> list[Request]:
        """Returns running requests to preempt before the next step, even if there is room for all."""
        return []


class FirstCome(Policy):
    """Orders by arrival; a preempted request keeps its place."""

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        return sorted(waiting, key=lambda r: r.order)


class Priority(Policy):
    """Orders by priority, the smaller number first, then by arrival. Requests of low priority may starve."""

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        return sorted(waiting, key=lambda r: (r.priority, r.order))


class Aging(Policy):
    """Orders by priority, prompt length and time since arrival: one level of priority counts as much as `PROMPT` prompt
    tokens, or as `aging_s` seconds of waiting.

    The order of two requests never changes, since both age at the same rate. So a later request can only pass an
    earlier one if it arrives within `aging_s` times their difference in levels. A long prompt waits in proportion to
    its length, and no request starves.
    """

    PROMPT = 512

    def rank(self, request: Request) -> Rank:
        steps = request.priority + request.prompt_tokens / self.PROMPT
        return request.arrived + self.aging_s * steps, request.order

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        return sorted(waiting, key=self.rank)

    def victim(self, running: Sequence[Request]) -> Request:
        return max(running, key=self.rank)


class LeastServed(Aging):
    """Orders by priority, then by the number of generated tokens in levels that double, then as Aging does. Waiting
    lowers the level by one for each `aging_s`, so that long outputs finish even if new requests keep coming.

    A waiting request may preempt a running one of a higher level if the running one
    - is expected to need more tokens than the new request in all plus its own recomputation, and
    - has at least doubled its output since its last admission, by QUANTUM tokens or more.
    So a request with n output tokens is preempted in favour of others at most 1 + log2(n / QUANTUM) times.
    """

    QUANTUM = 64  # output tokens of the lowest level

    def _level(self, request: Request) -> int:
        return ((request.known - request.prompt_tokens) // self.QUANTUM).bit_length()

    def rank(self, request: Request) -> Rank:
        aged = int((self.clock() - request.waits_since) / self.aging_s)
        return request.priority, self._level(request) - aged, *super().rank(request)

    def _grown(self, request: Request) -> bool:
        generated, before = request.num_output_tokens, request.admitted_with
        return generated - before >= max(before, self.QUANTUM)

    def victim(self, running: Sequence[Request]) -> Request:
        return Policy.victim(self, running)

    def victims_for(self, request: Request, running: Sequence[Request], reserve: Reserve) -> list[Request]:
        wanted, takes = self.rank(request)[:2], reserve.tokens(request, 0.5)
        return sorted((r for r in running if (r.priority, self._level(r)) > wanted and self._grown(r)
                       and reserve.tokens(r, 0.5) - r.known > r.known + takes),
                      key=lambda r: (-r.priority, -self._level(r), -r.order))


class LongestPrefix(FirstCome):
    """Orders by the length of the cached prefix, found by a prefix cache lookup for each waiting request.

    The oldest request is first after it was passed over PATIENCE times. A queue longer than QUEUE is ordered by
    arrival, because the lookups would cost more than they save."""

    PATIENCE = 64  # times that the oldest request may be passed over
    QUEUE = 128

    def __init__(self, clock: Callable[[], float] = time.monotonic, aging_s: float = 10.0) -> None:
        super().__init__(clock, aging_s)
        self._oldest = -1
        self._passed = 0

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        by_arrival = super().order(waiting, running, cache)
        if not by_arrival or len(by_arrival) > self.QUEUE:
            return by_arrival
        oldest = by_arrival[0].order
        self._passed = self._passed + 1 if oldest == self._oldest else 0
        self._oldest = oldest
        if self._passed > self.PATIENCE:
            return by_arrival
        return sorted(by_arrival, key=lambda r: -cache.cached_prefix(r.table.salt, r.tokens))


POLICIES: dict[str, type[Policy]] = {
    "fcfs": FirstCome, "priority": Priority, "aging": Aging, "least-served": LeastServed,
    "longest-prefix": LongestPrefix,
}


def make_policy(name: str, clock: Callable[[], float] = time.monotonic, aging_s: float = 10.0) -> Policy:
    """Returns the policy of that name. Raises RequestError if the name is unknown."""
    try:
        return POLICIES[name](clock, aging_s)
    except KeyError:
        raise RequestError(f"policy must be one of {', '.join(POLICIES)}, not {name!r}") from None
