"""The scheduler: which rows the next step computes.

It knows no phases. Each request has `computed` chasing `known`; a step spends one budget of tokens, on running requests
first and then on waiting ones. Admission is an attempt that returns the first work or the reason why there is none.
Preemption frees a request's pages; after its next admission `computed` is what the prefix tree still holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drut.cache.cache import KvCache
from drut.engine.admission import Admission, SchedulerStallError
from drut.engine.ahead import steps_ahead
from drut.engine.pacer import Pacer
from drut.engine.policy import Policy
from drut.engine.request import Request
from drut.engine.reserve import Reserve
from drut.engine.rows import rows_of, with_drafts
from drut.engine.work import PLACES, PREEMPTIONS, WAITS, Budget, Limits, Refused, Work

Drafts = Mapping[Request, Sequence[int]]  # guesses of a request's next tokens
NO_DRAFTS: Drafts = {}


class Scheduler:
    """Owns the waiting and the running requests and their block tables. Used by the engine's thread alone."""

    def __init__(self, cache: KvCache, limits: Limits, policy: Policy, pacer: Pacer, *,
                 reserve: Reserve | None = None) -> None:
        self.cache, self.limits, self.policy, self.pacer = cache, limits, policy, pacer
        self.reserve = reserve or Reserve()
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.preemptions = dict.fromkeys(PREEMPTIONS, 0)
        self._admission = Admission(cache, limits, pacer, self.reserve, self.running)
        self._slots = list(range(limits.seqs - 1, -1, -1))

    @property
    def expected_tokens(self) -> int:
        """Output tokens that the running requests are expected to add: of each, up to the median of such lengths."""
        return sum(self.reserve.tokens(r, 0.5) - max(r.known, r.prompt_tokens) for r in self.running)

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def schedule(self, drafts: Drafts = NO_DRAFTS) -> list[Work]:
        """The next step's work; empty if no request can use one now. `drafts` are verified as far as there is room."""
        preempted = False
        for request in self.policy.preempt_now(self.running):
            self.preempt(request)
            preempted = True
        streaming: list[Request] = []
        others: list[Request] = []
        for request in self.running:
            (streaming if request.streaming else others).append(request)
        paced = self.limits.chunk is None and bool(streaming)
        budget = Budget(self.limits.tokens, self.limits.samples, paced)
        for request in (*streaming, *others):
            preempted |= request.slot >= 0 and self._continue(request, budget, drafts.get(request, ()))
        if not preempted or not budget.work:
            self._admit(budget)
        self._prove_progress(budget)
        self.pacer.scheduled(mixed=paced and any(not work.decodes for work in budget.work.values()))
        ahead = self._steps_ahead(budget)
        works = list(budget.work.values())
        if ahead:
            works = [work._replace(ahead=ahead) for work in works]
        for work in works:
            work.request.progress.launch(work)
            work.request.why.steps += 1 + ahead
        return works

    def _steps_ahead(self, budget: Budget) -> int:
        """Steps that may follow without the host: none if a request waits or takes no part."""
        joins = any(self.policy.may_join(r) for r in self.waiting)
        if self.limits.burst == 1 or not self.policy.bursts or joins or len(budget.work) < len(self.running):
            return 0
        return steps_ahead(budget.work.values(), self.cache, self.limits.burst - 1)

    def confirm(self, work: Work, step: int = 0, drawn: Sequence[int] = ()) -> int:
        """The step with `work`, or the one that many after it, is over, and its pages may be shared.

        Returns how many of the ids `drawn` count: all, unless they verify drafts."""
        request, progress = work.request, work.request.progress
        current = progress.land(work, step)
        count = progress.accept(work, drawn) if work.drafts and drawn else len(drawn)
        if current:
            self.cache.commit(request.table, request.tokens, min(progress.done, len(request.tokens)))
        return count

    def finish(self, request: Request) -> None:
        """Takes a request out, wherever it is, and releases its pages; full ones stay cached."""
        if request.slot >= 0:
            self._stop(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        request.progress.end()
        self.reserve.ended(request, (*self.running, *self.waiting))

    def preempt(self, request: Request, why: str = "other") -> None:
        """Back to waiting, for a reason of PREEMPTIONS. Its full pages stay in the tree until they are needed."""
        self._stop(request)
        request.progress.preempt()
        request.why.preemptions += 1
        request.why.waits_on = WAITS[0]
        request.waits_since = self.policy.clock()
        self.preemptions[why] += 1
        self.waiting.append(request)

    def _start(self, request: Request) -> None:
        self.waiting.remove(request)
        self.running.append(request)
        request.slot = self._slots.pop()
        request.admitted_with = len(request.output)
        self._admission.changed()

    def _stop(self, request: Request) -> None:
        self.running.remove(request)
        self._slots.append(request.slot)
        request.slot = -1
        self.cache.commit(request.table, request.tokens, min(request.progress.done, len(request.tokens)))
        self.cache.release(request.table)
        self._admission.changed()

    def _continue(self, request: Request, budget: Budget, drafts: Sequence[int]) -> bool:
        """Gives a running request its rows, preempting for their pages where it must; True if it preempted."""
        work = rows_of(request, budget, self.limits, self.pacer)
        if work is None:
            return False
        if drafts and work.decodes:
            work = with_drafts(work, drafts, budget, len(self.running) - len(budget.work) - 1)
        preempted = False
        while not self.cache.reserve(request.table, work.start + work.rows):
            victim = self.policy.victim(self.running)
            budget.drop(victim)
            self.preempt(victim, "pages")
            preempted = True
            if victim is request:
                return True
        budget.add(work)
        return preempted

    def _admit(self, budget: Budget) -> None:
        """Admits waiting requests in the policy's order, up to the first that must wait for room."""
        if not self.waiting:
            return
        now = self.policy.clock()
        for request in self.policy.order(self.waiting, self.running, self.cache):
            attempt = self._admission.attempt(request, budget, now)
            if isinstance(attempt, Refused) and attempt.waits_on in PLACES and self._displace(request, budget):
                attempt = self._admission.attempt(request, budget, now)
            if isinstance(attempt, Work):
                self._start(request)
                budget.add(attempt)
                continue
            request.why.waits_on, request.why.waited_for = attempt.waits_on, attempt.reason
            if not attempt.passable:
                return

    def _displace(self, request: Request, budget: Budget) -> bool:
        """Preempts running requests in favour of `request`, as few as make room for it; none if that is not enough, or
        if the step has no rows for it even so."""
        victims = self._admission.room_by(self.policy.displaced(request, self.running, self.reserve), request)
        if not victims:
            return False
        dropped = [work for victim in victims if (work := budget.drop(victim))]
        if rows_of(request, budget, self.limits, self.pacer) is None:
            for work in dropped:
                budget.add(work)
            return False
        for victim in victims:
            self.preempt(victim, "policy")
        return True

    def _prove_progress(self, budget: Budget) -> None:
        """SchedulerStallError if there is no work and nothing that any request could be waiting for."""
        left = (*self.running, *self.waiting)
        if not budget.work and left and not any(r.progress.inflight or r.blockers for r in left):
            reasons = {r.why.waited_for for r in self.waiting}
            raise SchedulerStallError(f"{len(self.running)} running and {len(self.waiting)} waiting requests, "
                                      f"and nothing to compute: {'; '.join(sorted(reasons))}")
