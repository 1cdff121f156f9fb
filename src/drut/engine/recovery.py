"""Putting the scheduler right after a step that failed."""

from __future__ import annotations

from drut.engine.scheduler import Scheduler
from drut.engine.work import Work


def break_off(scheduler: Scheduler) -> None:
    """`schedule` has raised: a request that was just being admitted waits again."""
    for request in scheduler.waiting:
        scheduler.cache.release(request.table)
        request.progress.detach()


def take_back(scheduler: Scheduler, work: Work) -> None:
    """The step with `work` was launched and its outcome dropped: what it would have computed is computed again."""
    request = work.request
    request.progress.take_back(work)
    if request.guide is not None:
        request.guide.truncate(len(request.output))
    if request in scheduler.running and request.progress.epoch == work.epoch:
        scheduler.preempt(request)
