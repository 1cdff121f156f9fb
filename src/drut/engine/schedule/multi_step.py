"""Multi-step decoding: a burst of decode steps follows the scheduled step without the host."""

from __future__ import annotations

from collections.abc import Collection

from drut.cache.cache import KvCache
from drut.engine.schedule.work import ScheduledRequest


def steps_ahead(works: Collection[ScheduledRequest], cache: KvCache, max_steps: int) -> int:
    """Returns how many steps may follow, at most `max_steps`. All requests must decode, and have pages for the rows.

    Reserves pages while there are free ones; it never preempts.
    """
    ahead = max_steps
    for work in works:
        ahead = min(ahead, work.request.steps_alone - 1) if work.decodes and not work.drafts else 0
    for work in works:
        table, end = work.request.table, work.start + work.rows
        if ahead > 0 and not cache.reserve(table, end + ahead):
            while ahead > 0 and not cache.holds(table, end + ahead):
                ahead -= 1
    return ahead


def unwind(work: ScheduledRequest, steps: int) -> None:
    """Takes back the last `steps` of the steps that should have followed `work`: the burst ended early."""
    work.request.progress.retract(work, steps)
    work.request.why.steps -= steps
