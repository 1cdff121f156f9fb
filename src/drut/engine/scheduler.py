"""The scheduler: which rows the next step computes.

It knows no phases. Each request has `computed` chasing `known`; a step spends one budget of tokens, on running requests
first and then on waiting ones. Admission is an attempt that says what it took or why it could not. Preemption frees a
request's pages and sets `computed` to what the tree still holds when it comes back; nothing else changes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence

from drut.cache.cache import KvCache
from drut.engine.ahead import steps_ahead
from drut.engine.pacer import Pacer
from drut.engine.policy import Policy
from drut.engine.request import Request
from drut.engine.reserve import Reserve
from drut.engine.rows import rows_of
from drut.engine.work import PLACES, PREEMPTIONS, WAITS, Budget, Limits, Refused, Work


class SchedulerStallError(RuntimeError):
    """Requests are left and a step would compute nothing: a bug, never a user's error."""


class Scheduler:
    """Owns the waiting and the running requests and their block tables."""

    def __init__(self, cache: KvCache, limits: Limits, policy: Policy, pacer: Pacer, *,
                 reserve: Reserve | None = None, continuous: bool = True, force_preempt: float = 0.0) -> None:
        """Without `continuous` a batch is whoever waits when nothing runs, and nobody joins until all of it are done.
        `force_preempt`: the chance that a running request is preempted at a step, for tests."""
        self.cache, self.limits, self.policy, self.pacer = cache, limits, policy, pacer
        self.reserve = reserve or Reserve()
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.preemptions = dict.fromkeys(PREEMPTIONS, 0)
        self._slots = list(range(limits.seqs - 1, -1, -1))
        self._batch: set[Request] | None = None if continuous else set()
        self._force = force_preempt
        self._dice = random.Random(0)

    @property
    def expected_tokens(self) -> int:
        """That those running will say yet: of each as many as half of such answers do not exceed."""
        return sum(self.reserve.tokens(r, 0.5) - max(r.known, r.prompt_tokens) for r in self.running)

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
        """How many steps may follow by themselves: none where anybody waits or does not take part."""
        waits = any(self._may_join(r) for r in self.waiting)
        if self.limits.burst == 1 or self._force or waits or len(budget.work) < len(self.running):
            return 0
        return steps_ahead(budget.work.values(), self.cache, self.limits.burst - 1)

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
        self.reserve.ended(request, (*self.running, *self.waiting))

    def preempt(self, request: Request, why: str = "other") -> None:
        """Back to waiting, for a reason of PREEMPTIONS. Its full pages stay in the tree until they are needed."""
        self._stop(request)
        request.epoch += 1
        request.computed = request.done = 0
        request.why.preemptions += 1
        request.why.waits_on = WAITS[0]
        request.waits_since = self.policy.clock()
        self.preemptions[why] += 1
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
        work = rows_of(request, budget, self.limits, self.pacer)
        if work is None:
            return False
        while not self.cache.reserve(request.table, work.start + work.rows):
            victim = self.policy.victim(self.running)
            self._give_back(victim, budget)
            self.preempt(victim, "pages")
            preempted = True
            if victim is request:
                return True
        self._take(work, budget)
        return preempted

    def _take(self, work: Work, budget: Budget) -> None:
        budget.add(work)
        if not work.decodes:
            budget.effort -= self.pacer.effort(work.start, work.rows)

    def _give_back(self, request: Request, budget: Budget) -> Work | None:
        work = budget.drop(request)
        if work is not None and not work.decodes:
            budget.effort += self.pacer.effort(work.start, work.rows)
        return work

    def _may_join(self, request: Request) -> bool:
        return self._batch is None or request in self._batch

    def _admit(self, budget: Budget) -> None:
        order = self.policy.order(self.waiting, self.cache)
        if self._batch is not None and not self.running:  # first those who can begin, so that one does
            self._batch = set(sorted(order, key=lambda r: self._must_wait(r) is not None)[: self.limits.seqs])
        for request in filter(self._may_join, order):
            attempt = self._try_admit(request, budget)
            if isinstance(attempt, Refused) and attempt.waits_on in PLACES and self._displace(request, budget):
                attempt = self._try_admit(request, budget)
            if isinstance(attempt, Work):
                self._take(attempt, budget)
                continue
            request.why.waits_on, request.why.waited_for = attempt.waits_on, attempt.reason
            if not attempt.passable:
                return

    def _must_wait(self, request: Request) -> Refused | None:
        """For something else than room."""
        if request.inflight:
            return Refused("token", "its last token is on its way", passable=True)
        if request.guide is not None and not request.guide.ready:
            return Refused("grammar", "its grammar is being compiled", passable=True)
        first = request.first_choice
        if first is not None and self.cache.prefix_cache and not first.may_share:
            return Refused("choice", "the first choice computes their prompt", passable=True)
        return None

    def _try_admit(self, request: Request, budget: Budget) -> Work | Refused:
        if refused := self._must_wait(request):
            return refused
        if not self._slots:
            return Refused("sequences", f"all {self.limits.seqs} sequences are taken")
        hit = 0 if request.scores_prompt else self.cache.attach(request.table, request.tokens)
        short = _short(self._needed(request), self.cache.available)
        if short and self.running:
            self.cache.release(request.table)
            return Refused("pages", f"it needs {short[0]} pages of the KV cache, {short[1]} can be had")
        request.computed = request.done = hit
        work = rows_of(request, budget, self.limits, self.pacer)
        if work is None:
            self.cache.release(request.table)
            request.computed = request.done = 0
            return Refused("budget", "the step's budget is spent")
        if request.why.admitted_at is None:
            request.why.admitted_at = self.policy.clock()
            request.cached_tokens = min(hit, request.prompt_tokens)
        if not self.cache.reserve(request.table, work.start + work.rows):
            raise SchedulerStallError(f"request {request.id} needs more pages than the cache has")
        self.cache.count_lookup(request.table, request.tokens)
        self.waiting.remove(request)
        self.running.append(request)
        request.slot = self._slots.pop()
        request.admitted_with = len(request.output)
        return work

    def _needed(self, request: Request, gone: Collection[Request] = ()) -> list[int]:
        """Pages to be had for admitting `request`, by KV group, beside what will run then: without those who are
        `gone`."""
        running = [r for r in self.running if r not in gone]
        return [self.reserve.to_start(request, group) - request.table.held(i)
                + sum(self.reserve.to_go_on(r, group, i) for r in running) for i, group in enumerate(self.cache.groups)]

    def _displace(self, request: Request, budget: Budget) -> bool:
        """Preempts those who give way to `request`, as few as make room for it; nobody where that is not enough, or
        the step has no rows for it even so."""
        gone: list[Request] = []
        pages = self.cache.available
        for victim in self.policy.displaced(request, self.running, self.reserve):
            gone.append(victim)
            pages = [had + victim.table.held(i) for i, had in enumerate(pages)]
            if not _short(self._needed(request, gone), pages):
                break
        else:
            return False
        dropped = [work for victim in gone if (work := self._give_back(victim, budget))]
        if rows_of(request, budget, self.limits, self.pacer) is None:
            for work in dropped:
                self._take(work, budget)
            return False
        for victim in gone:
            self.preempt(victim, "policy")
        return True

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


def _short(needed: Sequence[int], available: Sequence[int]) -> tuple[int, int] | None:
    """Pages needed and to be had in the first KV group that lacks some; None where none does."""
    return next(((n, had) for n, had in zip(needed, available, strict=True) if n > had), None)
