"""Runs of a search on a simulated server, in virtual time."""

from __future__ import annotations

import heapq

import numpy as np

from drut.bench.metrics.request import Slo
from drut.bench.search.schema import Search
from drut.bench.search.search import About, Searcher, Wanted
from drut.bench.search.trial import SearchTrial, TrialAsk, worked_off
from tests.bench.search.queues import Floats, Server

START_S = 0.6  # that each run takes to begin


class Virtual:
    """A clock, and a measuring function that moves it."""

    def __init__(self, server: Server, ttft: float | None, seed: int) -> None:
        self.server, self.ttft, self.rng = server, ttft, np.random.default_rng([seed, 5])
        self.now, self.requests = 100.0, 0

    def clock(self) -> float:
        return self.now

    def measure(self, ask: TrialAsk) -> SearchTrial:
        end = ask.warmup_s + ask.window_s
        if ask.rate is not None:
            at = self.server.poisson(ask.rate, end, self.rng)
            _, first, whole = self.server.serve(at, self.rng)
        else:
            at, first, whole = self._closed(ask.concurrency or 1, end)
        ended = at + whole
        counted = at >= ask.warmup_s
        over = max(float(ended[counted].max(initial=end)), end)
        self.now += START_S + min(over, end + ask.grace_s)
        self.requests += len(at)
        whole = np.where(ended > end + ask.grace_s, np.inf, whole)
        good = None if self.ttft is None else (
            (first <= self.ttft) & np.isfinite(whole)).astype(np.float64)[counted]
        return SearchTrial(ask, whole[counted], good, worked_off(at, ended, (ask.warmup_s, end)))

    def _closed(self, users: int, end: float) -> tuple[Floats, Floats, Floats]:
        """Users who ask again as soon as they were answered."""
        n = 20_000
        first, rest = self.server.first(self.rng, n), self.server.rest(self.rng, n)
        ready = [0.0] * users  # is a heap
        free = [0.0] * self.server.slots
        rows = []
        for i in range(n):
            at = heapq.heappop(ready)
            if at >= end:
                break
            start = max(at, free[0])
            done = start + first[i] + rest[i]
            heapq.heapreplace(free, done)
            heapq.heappush(ready, done)
            rows.append((at, start + first[i] - at, done - at))
        table = np.array(rows)
        return table[:, 0], table[:, 1], table[:, 2]


def search(server: Server, ttft: float | None, seed: int, budget_s: float = 600.0, attain: float = 0.95) -> Search:
    """One whole search."""
    virtual = Virtual(server, ttft, seed)
    wanted = Wanted(budget_s, None if ttft is None else Slo(ttft=ttft), attain)
    began = virtual.now
    found = Searcher(measure=virtual.measure, wanted=wanted, about=About("virtual"), clock=virtual.clock,
                     save=lambda _: None, report=lambda _: None).run()
    assert virtual.now - began <= budget_s + 0.01, virtual.now - began
    return found
