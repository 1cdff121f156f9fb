"""The scheduler: chooses the rows of the next step. It does continuous batching: requests join and leave the batch at
every step.

There are no prefill and decode phases. Each request has `computed` rows and `known` tokens, and a step computes some of
the difference (chunked prefill, decode, or recomputation after a preemption). A step spends one token budget, first on
running requests and then on waiting ones. Admission returns the first work of a request or the reason for a refusal.
Preemption frees the pages of a request; at its next admission a prefix cache lookup finds the pages that are still
cached, and the rest is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drut.cache.cache import KvCache
from drut.engine.request.request import Request
from drut.engine.schedule.admission import EngineAdmission, SchedulerStallError
from drut.engine.schedule.chunked_prefill import rows_of, with_drafts
from drut.engine.schedule.multi_step import steps_ahead
from drut.engine.schedule.policy import Policy
from drut.engine.schedule.prefill_pacer import PrefillPacer
from drut.engine.schedule.reserve import Reserve
from drut.engine.schedule.work import PLACES, PREEMPTIONS, WAITS, Refused, ScheduledRequest, StepBudget, StepLimits

Drafts = Mapping[Request, Sequence[int]]  # proposed next tokens of a request
NO_DRAFTS: Drafts = {}


class Scheduler:
    """Owns the request queue (`waiting`), the running requests and their block tables. For the engine's thread only."""

    def __init__(self, cache: KvCache, limits: StepLimits, policy: Policy, pacer: PrefillPacer, *,
                 reserve: Reserve | None = None) -> None:
        self.cache, self.limits, self.policy, self.pacer = cache, limits, policy, pacer
        self.reserve = reserve or Reserve()
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.preemptions = dict.fromkeys(PREEMPTIONS, 0)
        self._admission = EngineAdmission(cache, limits, pacer, self.reserve, self.running)
        self._slots = list(range(limits.seqs - 1, -1, -1))  # free relay slots

    @property
    def expected_tokens(self) -> int:
        """The number of output tokens that running requests will still add, if each reaches the median length."""
        return sum(self.reserve.tokens(r, 0.5) - max(r.known, r.prompt_tokens) for r in self.running)

    def add(self, request: Request) -> None:
        """Adds a request to the queue."""
        self.waiting.append(request)

    def schedule(self, drafts: Drafts = NO_DRAFTS) -> list[ScheduledRequest]:
        """Returns the work of the next step; empty if no request can run now.

        In order:
        1. Preempt the requests that the policy wants to stop.
        2. Give rows to running requests: first those that decode (streaming), so that a prefill never takes their rows;
           then those that compute a prompt or recompute. KV block allocation happens here; if pages run out, the
           policy's victims are preempted.
        3. Admit waiting requests in the policy's order. Not after a preemption in this step, unless nothing has rows
           yet: the freed pages are for the requests that run.
        4. Decide how many decode steps may follow without the host (multi-step decoding).

        All rows count as computed from here on; `confirm` follows when the step is over. With overlap, the step before
        may still be in flight: the scheduler never needs the tokens that it draws, only their number. `drafts` are
        verified as far as the budget allows. Raises SchedulerStallError if requests are left and none can ever run.
        """
        preempted = False
        for request in self.policy.preempt_now(self.running):
            self.preempt(request)
            preempted = True
        streaming: list[Request] = []
        others: list[Request] = []
        for request in self.running:
            (streaming if request.streaming else others).append(request)
        paced = self.limits.chunk is None and bool(streaming)
        budget = StepBudget(self.limits.tokens, self.limits.samples, paced)
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

    def _steps_ahead(self, budget: StepBudget) -> int:
        """Returns how many steps may follow without the host: 0 if a request may join or a running one has no rows."""
        joins = any(self.policy.may_join(r) for r in self.waiting)
        if self.limits.burst == 1 or not self.policy.bursts or joins or len(budget.work) < len(self.running):
            return 0
        return steps_ahead(budget.work.values(), self.cache, self.limits.burst - 1)

    def confirm(self, work: ScheduledRequest, step: int = 0, drawn: Sequence[int] = ()) -> int:
        """Records that the step with `work` is over, or step number `step` of its burst. Caches the full pages.

        Returns how many of the ids `drawn` are accepted: all, unless they verify drafts. If the request was preempted
        or ended since the launch, its rows do not count."""
        request, progress = work.request, work.request.progress
        current = progress.land(work, step)
        count = progress.accept(work, drawn) if work.drafts and drawn else len(drawn)
        if current:
            self.cache.commit(request.table, request.tokens, min(progress.done, len(request.tokens)))
        return count

    def finish(self, request: Request) -> None:
        """Removes a request that has ended and releases its pages. Full pages stay in the prefix cache."""
        if request.slot >= 0:
            self._stop(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        request.progress.end()
        self.reserve.learn(request, (*self.running, *self.waiting))

    def preempt(self, request: Request, why: str = "other") -> None:
        """Preemption: frees the pages of a running request and puts it back into the queue. `why`: one of PREEMPTIONS.

        Its full pages stay in the prefix cache until they are evicted. Its tokens in flight still count.
        """
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
        request.admitted_with = len(request.output_ids)
        self._admission.changed()

    def _stop(self, request: Request) -> None:
        self.running.remove(request)
        self._slots.append(request.slot)
        request.slot = -1
        self.cache.commit(request.table, request.tokens, min(request.progress.done, len(request.tokens)))
        self.cache.release(request.table)
        self._admission.changed()

    def _continue(self, request: Request, budget: StepBudget, drafts: Sequence[int]) -> bool:
        """Schedules a running request and allocates the KV pages of its rows. Returns True if that took a
        preemption."""
        work = rows_of(request, budget, self.limits, self.pacer)
        if work is None:
            return False
        if drafts and work.decodes:
            drafted = with_drafts(work, drafts, budget, len(self.running) - len(budget.work) - 1)
            if self.cache.reserve(request.table, drafted.start + drafted.rows):  # no preemption in favour of drafts
                work = drafted
        preempted = False
        while not self.cache.reserve(request.table, work.start + work.rows):
            victim = self.policy.victim(self.running)
            budget.drop(victim)
            self.preempt(victim, "pages")
            preempted = True
            if victim is request:  # it was preempted itself, and has no rows in this step
                return True
        budget.add(work)
        return preempted

    def _admit(self, budget: StepBudget) -> None:
        """Admits waiting requests in the policy's order, up to the first that lacks pages, a sequence or budget."""
        if not self.waiting:
            return
        now = self.policy.clock()
        for request in self.policy.order(self.waiting, self.running, self.cache):
            attempt = self._admission.attempt(request, budget, now)
            if isinstance(attempt, Refused) and attempt.waits_on in PLACES and self._preempt_for(request, budget):
                attempt = self._admission.attempt(request, budget, now)
            if isinstance(attempt, ScheduledRequest):
                self._start(request)
                budget.add(attempt)
                continue
            request.why.waits_on, request.why.waited_for = attempt.waits_on, attempt.reason
            if not attempt.passable:
                return

    def _preempt_for(self, request: Request, budget: StepBudget) -> bool:
        """Preempts as few running requests as are needed to admit `request`. Returns False and preempts none if all are
        not enough, or if the step would still have no rows for it."""
        victims = self._admission.fewest_victims(self.policy.victims_for(request, self.running, self.reserve), request)
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

    def _prove_progress(self, budget: StepBudget) -> None:
        """Raises SchedulerStallError if there is no work and nothing that any request waits for."""
        left = (*self.running, *self.waiting)
        if not budget.work and left and not any(r.progress.inflight or r.blockers for r in left):
            reasons = {r.why.waited_for for r in self.waiting}
            raise SchedulerStallError(f"{len(self.running)} running and {len(self.waiting)} waiting requests, "
                                      f"and nothing to compute: {'; '.join(sorted(reasons))}")
