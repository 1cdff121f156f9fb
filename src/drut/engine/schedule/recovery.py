"""Recovery: repairs the scheduler after a step that failed."""

from __future__ import annotations

from drut.engine.schedule.scheduler import Scheduler
from drut.engine.schedule.work import ScheduledRequest


def undo_admission(scheduler: Scheduler) -> None:
    """Undoes an admission that was interrupted when `schedule` raised: the request waits again."""
    for request in scheduler.waiting:
        scheduler.cache.release(request.table)
        request.progress.detach()


def roll_back(scheduler: Scheduler, work: ScheduledRequest) -> None:
    """Rolls back a launched step whose outputs are dropped: its rows are computed again, its tokens drawn again.

    The grammar matcher may have seen those tokens, so it is truncated; a running request is preempted.
    """
    request = work.request
    request.progress.roll_back(work)
    if request.guide is not None:
        request.guide.truncate(len(request.output_ids))
    if request in scheduler.running and request.progress.epoch == work.epoch:
        scheduler.preempt(request)
