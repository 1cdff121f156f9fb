"""The simulator: runs the engine's scheduler, cache and policies on a virtual clock. Step times are predicted; no model
runs.

It simulates the engine without overlap: schedule, compute, process tokens. As in the engine, the length of an output is
not known in advance, only its limit. Prompts share no prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from drut.cache.cache import KvCache
from drut.cache.kinds import FullGroup, WindowGroup
from drut.cache.pool import PagePool
from drut.engine.request.logits_processors import LogitsProcessors
from drut.engine.request.params import FilledParams
from drut.engine.request.progress import Progress
from drut.engine.request.request import Request
from drut.engine.schedule.multi_step import unwind
from drut.engine.schedule.policy import make_policy
from drut.engine.schedule.prefill_pacer import PrefillPacer
from drut.engine.schedule.reserve import Reserve
from drut.engine.schedule.scheduler import Scheduler
from drut.engine.schedule.work import ScheduledRequest, StepLimits
from drut.errors import RequestError
from drut.kernels.cost import StepShape
from drut.kernels.pool import HostPool
from drut.kernels.predictor import Predictor


@dataclass(frozen=True)
class Arrival:
    """A request that arrives at `at` seconds. Its output ends by itself after `answer` tokens."""

    at: float
    prompt: int
    answer: int
    priority: int = 0


@dataclass(frozen=True)
class Setup:
    """The simulated engine: pages of the KV cache by group, maximum size of a step, and the policy with its settings.

    `windows`: positions that a row attends to in each group; 0 for all, which only the first group may have.
    """

    pages: tuple[int, ...]
    limits: StepLimits
    context: int
    policy: str = "fcfs"
    aging_s: float = 10.0
    reserve_quantile: float = 0.0
    windows: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class SimulatedOutcome:
    """The result of one request. Seconds are of the virtual clock."""

    arrival: Arrival
    tokens: int
    first_token_at: float
    finished_at: float
    preemptions: int

    @property
    def ttft(self) -> float:
        return self.first_token_at - self.arrival.at

    @property
    def tpot(self) -> float:
        """Seconds per output token after the first; 0 for an output of one token."""
        return (self.finished_at - self.first_token_at) / max(self.tokens - 1, 1)


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation. `outcomes` are in the order of arrival."""

    outcomes: list[SimulatedOutcome]
    preemptions: dict[str, int]
    steps: int
    rows: int
    seconds: float


class Simulation:
    """One run of the simulator. `limit`: the `max_tokens` of each request."""

    def __init__(self, setup: Setup, predictor: Predictor, limit: int = 1 << 20) -> None:
        self.now = 0.0
        self._predictor, self._limit = predictor, limit
        clock: Callable[[], float] = lambda: self.now  # noqa: E731
        pools = [PagePool(HostPool(np.empty((pages, 1), np.uint8))) for pages in setup.pages]
        cache = KvCache(*pools, groups=[WindowGroup(window, setup.limits.tokens) if window else FullGroup()
                                        for window in setup.windows])
        self.scheduler = Scheduler(cache, setup.limits, make_policy(setup.policy, clock, setup.aging_s),
                                   PrefillPacer(predictor), reserve=Reserve(setup.reserve_quantile))
        self._room = cache.room(setup.context)
        self._answers: dict[Request, int] = {}
        self._steps = self._rows = 0

    def run(self, arrivals: Sequence[Arrival]) -> Simulated:
        """Runs until all requests have ended. Raises RequestError if a prompt can never fit."""
        coming = sorted(arrivals, key=lambda a: a.at)
        requests: list[Request] = []
        while len(requests) < len(coming) or self.scheduler.running or self.scheduler.waiting:
            while len(requests) < len(coming) and coming[len(requests)].at <= self.now:
                requests.append(self._submit(coming[len(requests)], len(requests)))
            work = self.scheduler.schedule()
            following = coming[len(requests)].at if len(requests) < len(coming) else float("inf")
            if work:
                self._compute(work, following)
            else:
                self.now = following
        outcomes = [self._outcome(a, r) for a, r in zip(coming, requests, strict=True)]
        return Simulated(outcomes, dict(self.scheduler.preemptions), self._steps, self._rows, self.now)

    def _submit(self, arrival: Arrival, number: int) -> Request:
        if arrival.prompt >= self._room:
            raise RequestError(f"a prompt of {arrival.prompt} tokens leaves no room in {self._room}")
        params = FilledParams(max_tokens=self._limit)
        request = Request(id=str(number), progress=Progress([number] * arrival.prompt), params=params,
                          limit=min(arrival.prompt + self._limit, self._room), arrived=arrival.at, order=number,
                          edits=LogitsProcessors(params, (), ()), priority=arrival.priority,
                          table=self.scheduler.cache.table(str(number)))
        self._answers[request] = arrival.answer
        self.scheduler.add(request)
        return request

    def _compute(self, work: list[ScheduledRequest], following: float) -> None:
        """Computes a step and the steps of its burst, until a request ends or the next one arrives."""
        planned = 1 + work[0].ahead
        left = min((self._left(w.request) for w in work if w.draws), default=1)
        seconds, ran = 0.0, 0
        while ran == 0 or (ran < min(planned, left) and self.now + seconds < following):
            seconds += self._predictor.seconds(StepShape.of(work, ran))
            ran += 1
        self.now += seconds
        self._steps += ran
        self._rows += ran * sum(w.rows for w in work)
        for w in work:
            unwind(w, planned - ran)
            self._take(w, ran)

    def _left(self, request: Request) -> int:
        made = len(request.output_ids)
        return min(self._answers[request] - made, request.limit - request.prompt_tokens - made)

    def _take(self, work: ScheduledRequest, ran: int) -> None:
        request = work.request
        for step in range(ran):
            self.scheduler.confirm(work, step)
            if work.draws:
                request.progress.add(request.order)
        if not work.draws:
            return
        if request.first_token_at is None:
            request.first_token_at = self.now
        if self._left(request) == 0:
            ended = len(request.output_ids) == self._answers[request]
            request.finish_reason, request.finished_at = "stop" if ended else "length", self.now
            self.scheduler.finish(request)

    def _outcome(self, arrival: Arrival, request: Request) -> SimulatedOutcome:
        assert request.first_token_at is not None
        assert request.finished_at is not None
        return SimulatedOutcome(arrival, len(request.output_ids), request.first_token_at, request.finished_at,
                                request.why.preemptions)
