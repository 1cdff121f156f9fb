"""Chunked prefill: how many of the pending rows of a request one step computes. A long prompt takes several steps, each
together with decoding requests."""

from __future__ import annotations

from collections.abc import Sequence

from drut.engine.request.request import Request
from drut.engine.schedule.prefill_pacer import PrefillPacer
from drut.engine.schedule.work import ScheduledRequest, StepBudget, StepLimits


def rows_of(request: Request, budget: StepBudget, limits: StepLimits, pacer: PrefillPacer) -> ScheduledRequest | None:
    """Returns the rows of `request` that fit the budget, or None.

    Prompt rows whose logprobs are requested are sampled and so also take from the budget of samples.
    """
    pending = request.pending
    if pending == 0 or request.waits_for_token:
        return None
    chunk = 1 if pending == 1 else _chunk(request, pending, budget, limits, pacer)
    count = min(pending, budget.tokens, chunk)
    if limits.chunk == 0 and count < pending and budget.work:
        return None  # whole prompts wait for a step with enough budget
    start = request.computed
    scores = 0
    if request.scores_prompt:
        first = max(start, request.progress.prompt_scored)
        count = min(count, first - start + budget.samples)
        scores = max(0, min(start + count, request.prompt_tokens - 1) - first)
        if count == pending and scores == budget.samples:
            count -= 1  # no sample is left for the last row, so it waits; no score needs it
    sample = count == pending
    if count <= 0 or sample + scores > budget.samples:
        return None
    return ScheduledRequest(request=request, start=start, rows=count, draws=int(sample), scores=scores,
                            epoch=request.progress.epoch)


def with_drafts(work: ScheduledRequest, drafts: Sequence[int], budget: StepBudget, others: int) -> ScheduledRequest:
    """Adds rows that verify `drafts` to the decode `work`: as many as the length limit allows and the budget has left
    after one row for each of `others` requests."""
    request = work.request
    count = min(budget.tokens - 1 - others, budget.samples - 1 - others, request.limit - request.known - 1)
    kept = tuple(drafts[: max(count, 0)])
    return work._replace(rows=1 + len(kept), draws=1 + len(kept), drafts=kept)


def _chunk(request: Request, pending: int, budget: StepBudget, limits: StepLimits, pacer: PrefillPacer) -> int:
    """Returns the maximum number of rows in this step for a request that has `pending` rows to compute."""
    chunk = request.chunk or limits.chunk
    if chunk == 0:
        return pending
    if chunk is not None:
        return chunk
    if not budget.paced or not budget.tokens:
        return budget.tokens
    fit = pacer.tokens(budget.work.values(), request.computed, min(request.pending, budget.tokens))
    return max(fit, 1) if request.decoding else fit  # a stream of forced or recomputed rows must not stall either
