"""The scheduler: which rows the next step computes.

It knows no phases. Each request has `computed` chasing `known`; a step spends one budget of tokens, on running requests
first and then on waiting ones. Admission is an attempt that says what it took or why it could not. Preemption frees a
request's pages and sets `computed` to what the tree still holds when it comes back; nothing else changes.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drut.cache.cache import KvCache, pages_for
from drut.engine.pacer import Pacer
from drut.engine.policy import Policy
from drut.engine.request import Request
from drut.kernels.kv import PAGE_TOKENS


class SchedulerStallError(RuntimeError):
    """Requests are left and a step would compute nothing: a bug, never a user's error."""


class Work(NamedTuple):
    """Rows of one request in a step: `rows` tokens from position `start` on; whether the last one is sampled."""

    request: Request
    start: int
    rows: int
    sample: bool
    scores: int  # leading rows whose next token's logprob is wanted
    epoch: int
    ahead: int = 0  # steps after this one that go on from it without the host, one row each; the same for all work

    @property
    def decodes(self) -> bool:
        """One row that says a token: what a decoding stream asks of a step."""
        return self.rows == 1 and self.sample


# What a waiting request waits for, in a word.
WAITS = ("turn", "sequences", "pages", "budget", "choice", "token", "grammar")


class Refused(NamedTuple):
    """Why a request was not admitted, in a word of WAITS and in full. `passable`: those behind it may be tried."""

    waits_on: str
    reason: str
    passable: bool = False


class Limits(NamedTuple):
    """Of one step. `chunk`: prompt tokens of a request, 0 for whole prompts, None for as many as stall no stream.
    `burst`: decoding steps in one call."""

    seqs: int
    tokens: int
    samples: int
    chunk: int | None
    burst: int = 1


@dataclass
class Budget:
    """What the step being put together has left, and what it holds. `effort`: for prompts, as the pacer counts it."""

    tokens: int
    samples: int
    effort: float
    work: dict[Request, Work] = field(default_factory=dict)

    def add(self, work: Work) -> None:
        self.work[work.request] = work
        self.tokens -= work.rows
        self.samples -= work.sample + work.scores

    def drop(self, request: Request) -> Work | None:
        work = self.work.pop(request, None)
        if work is not None:
            self.tokens += work.rows
            self.samples += work.sample + work.scores
        return work


class Scheduler:
    """Owns the waiting and the running requests and their block tables."""

    def __init__(self, cache: KvCache, limits: Limits, policy: Policy, pacer: Pacer, *,
                 force_preempt: float = 0.0) -> None:
        """`force_preempt`: the chance that a running request is preempted at a step, for tests."""
        self.cache, self.limits, self.policy, self.pacer = cache, limits, policy, pacer
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.preemptions = 0
        self._slots = list(range(limits.seqs - 1, -1, -1))
        self._force = force_preempt
        self._dice = random.Random(0)

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def schedule(self) -> list[Work]:
        """The next step's work; empty when no request can use one now."""
        preempted = self._preempt_by_chance()
        streams = sum(r.streaming for r in self.running)
        paced = self.limits.chunk is None and streams
        budget = Budget(self.limits.tokens, self.limits.samples, self.pacer.room(streams) if paced else math.inf)
        for request in sorted(self.running, key=lambda r: not r.streaming):
            preempted |= self._continue(request, budget)
        if not preempted:
            self._admit(budget)
        self._prove_progress(budget)
        ahead = self._ahead(budget)
        for work in budget.work.values():
            work.request.computed = work.start + work.rows + ahead
            work.request.inflight += work.sample * (1 + ahead)
            work.request.why.steps += 1 + ahead
        return [work._replace(ahead=ahead) for work in budget.work.values()]

    def _ahead(self, budget: Budget) -> int:
        """How many steps may follow by themselves: nobody waits, all that run decode, and have pages for the rows."""
        works = budget.work.values()
        if self.limits.burst == 1 or self._force or self.waiting or len(works) < len(self.running):
            return 0
        ahead = self.limits.burst - 1
        for work in works:
            ahead = min(ahead, work.request.steps_alone - 1) if work.decodes else 0
        for work in works:
            table, end = work.request.table, work.start + work.rows
            if ahead > 0 and not self.cache.reserve(table, end + ahead):
                ahead = len(table.pages) * PAGE_TOKENS - end
        return max(ahead, 0)

    def unwind(self, work: Work, steps: int) -> None:
        """The last `steps` of those that were to follow `work` did not run."""
        request = work.request
        request.inflight -= steps
        request.why.steps -= steps
        if request.epoch == work.epoch and request.finish_reason is None:
            request.computed -= steps

    def learn(self, work: Sequence[Work], seconds: float) -> None:
        """A step with this work, or each of a burst, took `seconds`."""
        effort = sum(self.pacer.effort(w.start, w.rows) for w in work if not w.decodes)
        self.pacer.learn(sum(w.decodes for w in work), effort, seconds)

    def confirm(self, work: Work, step: int = 0) -> bool:
        """The step with `work`, or that many after it, is over. False where the request was preempted meanwhile: only
        its token counts."""
        request = work.request
        if request.epoch != work.epoch or request.finish_reason is not None:
            return False
        request.done = work.start + work.rows + step
        self.cache.commit(request.table, request.tokens, min(request.done, len(request.tokens)))
        return True

    def finish(self, request: Request) -> None:
        """Takes a request out, wherever it is, and lets its pages go; full ones stay cached."""
        if request in self.running:
            self._stop(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def break_off(self) -> None:
        """`schedule` has raised: who was just being admitted waits again."""
        for request in self.waiting:
            self.cache.release(request.table)
            request.computed = request.done = 0

    def take_back(self, work: Work) -> None:
        """The step with `work` was launched and its outcome dropped: what it would have computed is computed again."""
        request = work.request
        request.inflight -= work.sample * (1 + work.ahead)
        request.prompt_scored -= work.scores
        if request in self.running and request.epoch == work.epoch:
            self.preempt(request)

    def preempt(self, request: Request) -> None:
        """Back to waiting. Its full pages stay in the tree until they are needed."""
        self._stop(request)
        request.epoch += 1
        request.computed = request.done = 0
        request.why.preemptions += 1
        request.why.waits_on = WAITS[0]
        self.preemptions += 1
        self.waiting.append(request)

    def _stop(self, request: Request) -> None:
        self.running.remove(request)
        self._slots.append(request.slot)
        request.slot = -1
        self.cache.commit(request.table, request.tokens, min(request.done, len(request.tokens)))
        self.cache.release(request.table)

    def _continue(self, request: Request, budget: Budget) -> bool:
        """Gives a running request its rows, preempting for their pages where it must; True if it preempted."""
        preempted = False
        if request not in self.running:
            return False
        work = self._work(request, budget)
        if work is None:
            return False
        while not self.cache.reserve(request.table, work.start + work.rows):
            victim = max(self.running, key=lambda r: (r.priority, r.order))
            self._give_back(victim, budget)
            self.preempt(victim)
            preempted = True
            if victim is request:
                return True
        self._take(work, budget)
        return preempted

    def _take(self, work: Work, budget: Budget) -> None:
        budget.add(work)
        if not work.decodes:
            budget.effort -= self.pacer.effort(work.start, work.rows)

    def _give_back(self, request: Request, budget: Budget) -> None:
        work = budget.drop(request)
        if work is not None and not work.decodes:
            budget.effort += self.pacer.effort(work.start, work.rows)

    def _admit(self, budget: Budget) -> None:
        for request in self.policy.order(self.waiting, self.cache):
            attempt = self._try_admit(request, budget)
            if isinstance(attempt, Work):
                self._take(attempt, budget)
                continue
            request.why.waits_on, request.why.waited_for = attempt.waits_on, attempt.reason
            if not attempt.passable:
                return

    def _try_admit(self, request: Request, budget: Budget) -> Work | Refused:
        if request.inflight:
            return Refused("token", "its last token is on its way", passable=True)
        if request.guide is not None and not request.guide.ready:
            return Refused("grammar", "its grammar is being compiled", passable=True)
        first = request.first_choice
        if first is not None and self.cache.prefix_cache and not first.may_share:
            return Refused("choice", "the first choice computes their prompt", passable=True)
        if not self._slots:
            return Refused("sequences", f"all {self.limits.seqs} sequences are taken")
        hit = 0 if request.scores_prompt else self.cache.attach(request.table, request.tokens)
        needed = pages_for(len(request.tokens)) - len(request.table.pages) + len(self.running)
        if needed > self.cache.available and self.running:
            self.cache.release(request.table)
            return Refused("pages", f"it needs {needed} pages of the KV cache, {self.cache.available} can be had")
        request.computed = request.done = hit
        work = self._work(request, budget)
        if work is None:
            self.cache.release(request.table)
            request.computed = request.done = 0
            return Refused("budget", "the step's budget is spent")
        if request.why.admitted_at is None:
            request.why.admitted_at = time.monotonic()
            request.cached_tokens = min(hit, request.prompt_tokens)
        if not self.cache.reserve(request.table, work.start + work.rows):
            raise SchedulerStallError(f"request {request.id} needs more pages than the cache has")
        self.cache.count_lookup(request.table, request.tokens)
        self.waiting.remove(request)
        self.running.append(request)
        request.slot = self._slots.pop()
        return work

    def _work(self, request: Request, budget: Budget) -> Work | None:
        """The rows of `request` that the budget allows, or None."""
        pending = request.pending
        if pending == 0 or (request.inflight and request.needs_last_token):
            return None
        count = min(pending, budget.tokens, self._chunk(request, budget))
        if self.limits.chunk == 0 and count < pending and budget.work:
            return None  # whole prompts wait for a step with room
        start = request.computed
        scores = 0
        if request.scores_prompt:
            first = max(start, request.prompt_scored)
            count = min(count, first - start + budget.samples)
            scores = max(0, min(start + count, request.prompt_tokens - 1) - first)
            if start + count == request.known and scores == budget.samples:
                count -= 1  # no room to sample: the last row, which no score needs, waits
        sample = start + count == request.known
        if count <= 0 or sample + scores > budget.samples:
            return None
        return Work(request, start, count, sample, scores, request.epoch)

    def _chunk(self, request: Request, budget: Budget) -> int:
        """Most prompt tokens of one request in a step."""
        chunk = self.limits.chunk
        if request.pending == 1 or chunk == 0:
            return request.pending
        if chunk is not None:
            return chunk
        if math.isinf(budget.effort):
            return budget.tokens
        alone = budget.effort > 0 and all(work.decodes for work in budget.work.values())
        least = 1 if alone or not budget.work else 0  # the first prompt gets on however much a token costs
        return max(self.pacer.tokens(request.computed, budget.effort), least)

    def _preempt_by_chance(self) -> bool:
        """Only requests that said something since they were last admitted: the others must get on."""
        if not self._force:
            return False
        chosen = [r for r in self.running if r.decoding and r.known > r.prompt_tokens + r.why.preemptions
                  and self._dice.random() < self._force]
        for request in chosen:
            self.preempt(request)
        return bool(chosen)

    def _prove_progress(self, budget: Budget) -> None:
        if not budget.work and self._force:
            self._admit(budget)  # all that ran was preempted by chance
        waits_for_result = any(r.inflight or not (r.guide is None or r.guide.ready)
                               for r in (*self.running, *self.waiting))
        if not budget.work and (self.running or self.waiting) and not waits_for_result:
            reasons = {r.why.waited_for for r in self.waiting}
            raise SchedulerStallError(f"{len(self.running)} running and {len(self.waiting)} waiting requests, "
                                      f"and nothing to compute: {'; '.join(sorted(reasons))}")
