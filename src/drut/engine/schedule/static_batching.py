"""Static batching, for comparison with continuous batching: a policy that wraps another one."""

from __future__ import annotations

from collections.abc import Sequence

from drut.cache.cache import KvCache
from drut.engine.request.request import Request
from drut.engine.schedule.admission import must_wait
from drut.engine.schedule.policy import Policy
from drut.engine.schedule.reserve import Reserve


class StaticBatching(Policy):
    """Forms a batch of waiting requests when nothing runs; others wait until all requests of the batch have ended."""

    def __init__(self, inner: Policy, seqs: int) -> None:
        """`inner` orders the requests; `seqs`: maximum size of a batch."""
        super().__init__(inner.clock, inner.aging_s)
        self._inner, self._seqs = inner, seqs
        self._batch: set[Request] = set()

    def order(self, waiting: Sequence[Request], running: Sequence[Request], cache: KvCache) -> list[Request]:
        ordered = self._inner.order(waiting, running, cache)
        if not running:  # requests that can start come first, so that at least one of the batch can
            self._batch = set(sorted(ordered, key=lambda r: must_wait(r, cache) is not None)[: self._seqs])
        return [r for r in ordered if r in self._batch]

    def may_join(self, request: Request) -> bool:
        return request in self._batch

    def victim(self, running: Sequence[Request]) -> Request:
        return self._inner.victim(running)

    def victims_for(self, request: Request, running: Sequence[Request], reserve: Reserve) -> list[Request]:
        return self._inner.victims_for(request, running, reserve)
