"""Admission: moves a waiting request into the batch if a sequence, pages and rows are available.

An attempt does the prefix cache lookup and the KV block allocation, and returns the first work of the request. If it is
refused, it releases everything and returns the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from drut.cache.cache import KvCache, Match
from drut.engine.request.request import Request
from drut.engine.schedule.chunked_prefill import rows_of
from drut.engine.schedule.prefill_pacer import PrefillPacer
from drut.engine.schedule.reserve import Reserve
from drut.engine.schedule.work import Refused, ScheduledRequest, StepBudget, StepLimits


class SchedulerStallError(RuntimeError):
    """Requests are left, but a step would compute nothing. This is a bug, never a user's error."""


class Shortage(NamedTuple):
    """Remembers a refusal for lack of pages, so that the next step need not look up the whole prompt again."""

    request: Request
    tokens: int  # of the request at that time
    match: Match
    shared: list[int]  # pages of its prefix that other requests hold, by KV group
    admitted: int  # number of admissions and ends at that time: each may change which pages are held


def must_wait(request: Request, cache: KvCache) -> Refused | None:
    """Returns why `request` cannot start even if there is room; None if it can."""
    if request.progress.inflight:
        return Refused("token", "its last token is in flight", passable=True)
    for blocker in request.blockers:
        return Refused(blocker.kind, blocker.reason, passable=True)
    first = request.first_choice
    if first is not None and cache.prefix_cache and not first.may_share:
        return Refused("choice", "the first choice computes their prompt", passable=True)
    return None


class EngineAdmission:
    """Tries to admit waiting requests. `running` is the scheduler's list, which is only read here."""

    def __init__(self, cache: KvCache, limits: StepLimits, pacer: PrefillPacer, reserve: Reserve,
                 running: Sequence[Request]) -> None:
        self.cache, self.limits, self.pacer, self.reserve, self._running = cache, limits, pacer, reserve, running
        self._changes = 0
        self._shortage: Shortage | None = None

    def changed(self) -> None:
        """Invalidates what is remembered of refusals: a request was admitted or stopped running."""
        self._changes += 1

    def attempt(self, request: Request, budget: StepBudget, now: float) -> ScheduledRequest | Refused:
        """Tries to admit a waiting request: returns its first work, or the reason for a refusal. `now`: by the policy's
        clock."""
        if refused := must_wait(request, self.cache):
            return refused
        if len(self._running) >= self.limits.seqs:
            return Refused("sequences", f"all {self.limits.seqs} sequences are taken")
        if self._running and (short := self._still_short(request)):
            return _no_pages(short)
        before = self.cache.available
        hit = 0 if request.scores_prompt else self.cache.attach(request.table, request.tokens)  # prefix cache lookup
        short = _short(self._needed(request), self.cache.available)
        if short and self._running:
            self._note_shortage(request, hit, before)
            self.cache.release(request.table)
            return _no_pages(short)
        request.progress.attach(hit)
        work = rows_of(request, budget, self.limits, self.pacer)
        if work is None:
            self.cache.release(request.table)
            request.progress.detach()
            return Refused("budget", "the step's budget is spent")
        if not self.cache.reserve(request.table, work.start + work.rows):
            raise SchedulerStallError(f"request {request.id} needs more pages than the cache has")
        self.cache.count_lookup(request.table, request.tokens)
        if request.why.admitted_at is None:
            request.why.admitted_at = now
            request.cached_tokens = min(hit, request.prompt_tokens)
        return work

    def fewest_victims(self, victims: Sequence[Request], request: Request) -> list[Request]:
        """Returns the fewest of `victims`, in order, whose preemption makes room for `request`; empty if none
        suffice."""
        gone: list[Request] = []
        pages = self.cache.available
        for victim in victims:
            gone.append(victim)
            pages = [had + victim.table.held(i) for i, had in enumerate(pages)]
            if not _short(self._needed(request, gone), pages):
                return gone
        return []

    def _needed(self, request: Request, gone: Collection[Request] = ()) -> list[int]:
        """Returns the pages that must be available to admit `request`, by KV group, once `gone` are preempted."""
        running = [r for r in self._running if r not in gone]
        return [self.reserve.pages_to_admit(request, group) - request.table.held(i)
                + sum(self.reserve.pages_to_continue(r, group, i) for r in running)
                for i, group in enumerate(self.cache.groups)]

    def _note_shortage(self, request: Request, hit: int, before: Sequence[int]) -> None:
        """`before`: pages available before `request` attached its prefix of `hit` tokens."""
        table, after = request.table, self.cache.available
        shared = [table.held(i) - (b - a) for i, (b, a) in enumerate(zip(before, after, strict=True))]
        self._shortage = Shortage(request, len(request.tokens), self.cache.match(table, request.tokens), shared,
                                  self._changes)

    def _still_short(self, request: Request) -> tuple[int, int] | None:
        """Returns the shortage of pages that a full attempt would find, if the last attempt implies it; else None.

        A cached prefix of n pages saves n pages, but those that no other request holds then stop being available. So
        only pages held by others change the balance. They change with admissions, ends and new nodes behind the match.
        """
        last = self._shortage
        if (last is None or last.request is not request or last.tokens != len(request.tokens)
                or last.admitted != self._changes or self.cache.grew(last.match)):
            return None
        needed = self._needed(request)
        return _short([n - s for n, s in zip(needed, last.shared, strict=True)], self.cache.available)


def _no_pages(short: tuple[int, int]) -> Refused:
    return Refused("pages", f"it needs {short[0]} pages of the KV cache, {short[1]} can be had")


def _short(needed: Sequence[int], available: Sequence[int]) -> tuple[int, int] | None:
    """Returns the pages needed and available in the first KV group with too few; None if there is none."""
    return next(((n, had) for n, had in zip(needed, available, strict=True) if n > had), None)
