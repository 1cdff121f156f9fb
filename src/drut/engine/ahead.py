"""Bursts: decoding steps that follow a scheduled one by themselves, without the host."""

from __future__ import annotations

from collections.abc import Collection

from drut.cache.cache import KvCache
from drut.engine.work import Work


def steps_ahead(works: Collection[Work], cache: KvCache, most: int) -> int:
    """How many of `most` steps may follow: as far as all only decode and have, or get, pages for the rows."""
    ahead = most
    for work in works:
        ahead = min(ahead, work.request.steps_alone - 1) if work.decodes and not work.drafts else 0
    for work in works:
        table, end = work.request.table, work.start + work.rows
        if ahead > 0 and not cache.reserve(table, end + ahead):
            while ahead > 0 and not cache.holds(table, end + ahead):
                ahead -= 1
    return ahead


def unwind(work: Work, steps: int) -> None:
    """The last `steps` of those that were to follow `work` did not run."""
    work.request.progress.retract(work, steps)
    work.request.why.steps -= steps
