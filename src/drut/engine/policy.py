"""The order of admission and the choice of preemption victims. A policy changes when a request is computed, never its
tokens."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from drut.cache.cache import KvCache
from drut.engine.request import Request
from drut.engine.reserve import Reserve
from drut.errors import RequestError

Rank = tuple[float, ...]  # the smaller goes first


class Policy(ABC):
    """Which waiting requests are tried first, and which running ones are preempted. It never changes a bit.

    `bursts`: whether steps may follow each other without the scheduler.
    """

    bursts = True

    def __init__(self, clock: Callable[[], float] = time.monotonic, aging_s: float = 10.0) -> None:
        """`aging_s`: seconds of waiting that weigh as much as one step of priority, where waiting counts."""
        self.clock, self.aging_s = clock, aging_s

    @abstractmethod
    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        """The waiting requests that may be tried, best first."""

    def may_join(self, request: Request) -> bool:
        """Whether a waiting request may be admitted while others run."""
        return True

    def victim(self, running: Sequence[Request]) -> Request:
        """The running request that is preempted if pages run out: of the lowest priority the latest.

        So the best of all is never preempted, and each gets to be the best."""
        return max(running, key=lambda r: (r.priority, r.order))

    def displaced(self, request: Request, running: Sequence[Request], reserve: Reserve) -> list[Request]:
        """Running requests that may be preempted to admit `request`, in preemption order. `reserve` estimates final
        lengths."""
        return []

    def preempt_now(self, running: Sequence[Request]) -> list[Request]:
        """Running requests to preempt before the next step, whatever room there is."""
        return []


class FirstCome(Policy):
    """By arrival; a preempted request keeps its place."""

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        return sorted(waiting, key=lambda r: r.order)


class Priority(Policy):
    """By priority, the smaller number first, then by arrival. What has little priority may wait for ever."""

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        return sorted(waiting, key=lambda r: (r.priority, r.order))


class Aging(Policy):
    """By priority and size of the prompt, both weighed against the time since arrival: a step of priority counts as
    much as `PROMPT` tokens, or as `aging_s` of waiting.

    Of two requests the order never changes, since both wait alike. So a request is only ever passed by those that come
    less than `aging_s` times the difference in steps after it, and a long prompt waits in proportion to its length.
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
    """Within a priority by how many tokens were said for a request, in levels that double; within a level by arrival
    and size of the prompt, as Aging weighs them. Waiting takes a level off for each `aging_s`, so long answers end
    beside any number of new ones.

    One that waits takes the place of a running one of a higher level, if that one
    - is expected to take longer still than the new one takes in all and itself to be computed again, and
    - has at least doubled its answer since it was admitted last, by a quantum at least.
    So a request of n tokens is displaced at most 1 + log2(n / QUANTUM) times.
    """

    QUANTUM = 64  # tokens of the lowest level

    def _level(self, request: Request) -> int:
        return ((request.known - request.prompt_tokens) // self.QUANTUM).bit_length()

    def rank(self, request: Request) -> Rank:
        aged = int((self.clock() - request.waits_since) / self.aging_s)
        return request.priority, self._level(request) - aged, *super().rank(request)

    def _grown(self, request: Request) -> bool:
        said, before = request.known - request.prompt_tokens, request.admitted_with
        return said - before >= max(before, self.QUANTUM)

    def victim(self, running: Sequence[Request]) -> Request:
        return Policy.victim(self, running)

    def displaced(self, request: Request, running: Sequence[Request], reserve: Reserve) -> list[Request]:
        wanted, takes = self.rank(request)[:2], reserve.tokens(request, 0.5)
        return sorted((r for r in running if (r.priority, self._level(r)) > wanted and self._grown(r)
                       and reserve.tokens(r, 0.5) - r.known > r.known + takes),
                      key=lambda r: (-r.priority, -self._level(r), -r.order))


class LongestPrefix(FirstCome):
    """By how much of the request is cached. The oldest goes first once it was passed over often enough, and a long
    queue is taken by arrival: matching every request of it would cost more than it saves."""

    PATIENCE = 64  # times the oldest is passed over
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
    try:
        return POLICIES[name](clock, aging_s)
    except KeyError:
        raise RequestError(f"policy must be one of {', '.join(POLICIES)}, not {name!r}") from None
