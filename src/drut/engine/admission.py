"""Admission: whether a waiting request can run now, and which running ones make room for it.

An attempt takes what the request needs and returns its first work, or takes nothing and returns the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from drut.cache.cache import KvCache, Match
from drut.engine.pacer import Pacer
from drut.engine.request import Request
from drut.engine.reserve import Reserve
from drut.engine.rows import rows_of
from drut.engine.work import Budget, Limits, Refused, Work


class SchedulerStallError(RuntimeError):
    """Requests are left and a step would compute nothing: a bug, never a user's error."""


class Shortage(NamedTuple):
    """Why the head of the queue was refused pages, so that the next step need not match its whole prompt again."""

    request: Request
    tokens: int  # known then
    match: Match
    shared: list[int]  # pages of its prefix that others hold, by KV group
    admitted: int  # admissions and ends so far: either may change whose pages are held


def must_wait(request: Request, cache: KvCache) -> Refused | None:
    """Why `request` cannot begin however much room there is."""
    if request.progress.inflight:
        return Refused("token", "its last token is on its way", passable=True)
    for blocker in request.blockers:
        return Refused(blocker.kind, blocker.reason, passable=True)
    first = request.first_choice
    if first is not None and cache.prefix_cache and not first.may_share:
        return Refused("choice", "the first choice computes their prompt", passable=True)
    return None


class Admission:
    """Attempts to admit requests. `running` is the scheduler's list; nothing here writes to it."""

    def __init__(self, cache: KvCache, limits: Limits, pacer: Pacer, reserve: Reserve,
                 running: Sequence[Request]) -> None:
        self.cache, self.limits, self.pacer, self.reserve, self._running = cache, limits, pacer, reserve, running
        self._changes = 0
        self._shortage: Shortage | None = None

    def changed(self) -> None:
        """A request was admitted, or left the running ones."""
        self._changes += 1

    def attempt(self, request: Request, budget: Budget, now: float) -> Work | Refused:
        """Pages, and rows of the step, for a request that waits; `now` by the policy's clock."""
        if refused := must_wait(request, self.cache):
            return refused
        if len(self._running) >= self.limits.seqs:
            return Refused("sequences", f"all {self.limits.seqs} sequences are taken")
        if self._running and (short := self._still_short(request)):
            return _no_pages(short)
        before = self.cache.available
        hit = 0 if request.scores_prompt else self.cache.attach(request.table, request.tokens)
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

    def room_by(self, victims: Sequence[Request], request: Request) -> list[Request]:
        """As few of `victims`, in order, as make room for `request` if they are preempted; none if all do not."""
        gone: list[Request] = []
        pages = self.cache.available
        for victim in victims:
            gone.append(victim)
            pages = [had + victim.table.held(i) for i, had in enumerate(pages)]
            if not _short(self._needed(request, gone), pages):
                return gone
        return []

    def _needed(self, request: Request, gone: Collection[Request] = ()) -> list[int]:
        """Pages that must be available to admit `request`, by KV group, if those `gone` no longer run."""
        running = [r for r in self._running if r not in gone]
        return [self.reserve.to_start(request, group) - request.table.held(i)
                + sum(self.reserve.to_go_on(r, group, i) for r in running) for i, group in enumerate(self.cache.groups)]

    def _note_shortage(self, request: Request, hit: int, before: Sequence[int]) -> None:
        """`before`: pages available before `request` attached its prefix of `hit` tokens."""
        table, after = request.table, self.cache.available
        shared = [table.held(i) - (b - a) for i, (b, a) in enumerate(zip(before, after, strict=True))]
        self._shortage = Shortage(request, len(request.tokens), self.cache.match(table, request.tokens), shared,
                                  self._changes)

    def _still_short(self, request: Request) -> tuple[int, int] | None:
        """The shortage of pages that a whole attempt would find, where the last one tells without another match.

        A prefix of n pages saves n, of which those that no other request holds are no longer available. So only the
        pages that others hold count, and they change with admissions, ends, and new nodes behind the match.
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
    """Pages needed and available in the first KV group that lacks some; None if none does."""
    return next(((n, had) for n, had in zip(needed, available, strict=True) if n > had), None)
