"""Turns step outputs into output tokens. This is the only place where a request gets a token or ends by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from drut.engine.request.request import Request
from drut.engine.request.update import Update, scored
from drut.engine.schedule.forced_tokens import forced_run
from drut.engine.schedule.scheduler import Scheduler
from drut.engine.schedule.work import ScheduledRequest
from drut.engine.step.speculation import Speculation
from drut.errors import RequestError
from drut.kernels.ops import F32
from drut.kernels.output import Status, StepOutput
from drut.speculate import VerifiedDrafts

NOTHING_ALLOWED = "min_tokens, stop_token_ids, logit_bias and the constraint together leave no token"

Finish = Callable[[Request, str], None]


class Acceptor:
    """Confirms rows with the scheduler, appends tokens and scores, and ends requests by EOS, stop id, grammar or
    length."""

    def __init__(self, scheduler: Scheduler, finish: Finish, speculation: Speculation) -> None:
        self._scheduler, self._finish, self._speculation = scheduler, finish, speculation

    def process(self, works: Sequence[ScheduledRequest], out: StepOutput, step: int, logits: F32 | None,
                updates: list[Update]) -> None:
        """Processes the output of a step and appends to `updates`; `step`: its number in a burst.

        For a request that has ended since the launch the tokens are dropped.
        """
        now, at, verified = time.monotonic(), 0, dict[Request, VerifiedDrafts]()
        tokens, status = out.tokens.tolist(), out.status.tolist()
        for work in works:
            draws = range(at + work.scores, at + work.samples)
            drawn = tokens[draws.start : draws.stop]
            count = self._scheduler.confirm(work, step, drawn)
            if work.request.finish_reason is None:
                if work.drafts:
                    verified[work.request] = self._count(work, drawn[:count])
                self._read_scores(work, out, at, logits, updates)
                for sample in draws[:count]:
                    self._read(work.request, out, sample, tokens[sample], status[sample], now, updates)
                self.take_forced_tokens(work.request, now, updates)
            at += work.samples
        if verified:
            self._speculation.commit([one for request, one in verified.items() if request.finish_reason is None])

    def _count(self, work: ScheduledRequest, tokens: Sequence[int]) -> VerifiedDrafts:
        """Counts a verification. `tokens`: the accepted drafts and the token after them."""
        request, drafted, accepted = work.request, len(work.drafts), len(tokens) - 1
        request.why.drafted += drafted
        request.why.accepted += accepted
        self._speculation.count(request, drafted, accepted)
        return VerifiedDrafts(request.order, tokens, drafted, accepted)

    def force(self, requests: Sequence[Request], updates: list[Update]) -> None:
        """Appends the tokens that grammars force next: at once, or queued behind tokens in flight."""
        now = time.monotonic()
        for request in requests:
            if run := forced_run(request):
                waits = request.progress.inflight > 0
                request.progress.append_forced(run)
                if not waits:
                    self.take_forced_tokens(request, now, updates)

    def take_forced_tokens(self, request: Request, now: float, updates: list[Update]) -> None:
        """Appends the forced tokens that directly follow the tokens that the host has."""
        while request.finish_reason is None and (token := request.progress.next_forced()) is not None:
            reasoning = self._append(request, token, now)
            updates.append(Update(request, token, reasoning=reasoning, reasoning_tokens=_reasoning_tokens(request)))

    def _read_scores(self, work: ScheduledRequest, out: StepOutput, at: int, logits: F32 | None,
                     updates: list[Update]) -> None:
        request = work.request
        scores = tuple(scored(out, i, request.params.prompt_logprobs) for i in range(at, at + work.scores))
        rows = logits[at : at + work.samples] if logits is not None and request.logits else None
        if scores or rows is not None or not work.draws:
            updates.append(Update(request, None, None, scores, rows))

    def _read(self, request: Request, out: StepOutput, sample: int, token: int, status: int, now: float,
              updates: list[Update]) -> None:
        """Reads one sampled token. If an accepted draft ended the request, the samples after it are ignored."""
        if request.finish_reason is not None:
            return
        if status != Status.DRAWN:
            if status == Status.NONE_LEFT:
                request.failure = RequestError(NOTHING_ALLOWED)
            self._finish(request, "error")
            updates.append(Update(request, None))
            return
        top = request.params.logprobs
        scores = scored(out, sample, top) if top is not None else None
        reasoning = self._append(request, token, now)
        updates.append(Update(request, token, scores, reasoning=reasoning,
                              reasoning_tokens=_reasoning_tokens(request)))

    def _append(self, request: Request, token: int, now: float) -> bool:
        """Appends a token to a request, which may end it. Returns True if the token is part of the reasoning."""
        request.progress.add(token)
        request.edits.push(token)
        reasoning = request.reasoning is not None and request.reasoning.push(token)
        if request.first_token_at is None:
            request.first_token_at = now
        outputs = len(request.tokens) - request.prompt_tokens
        if token in request.ends and outputs >= request.params.min_tokens:
            self._finish(request, "stop")
        elif request.guide is not None and request.guide.failure is not None:
            request.failure = request.guide.failure
            self._finish(request, "error")
        elif request.guide is not None and request.guide.ended_by(outputs):
            self._finish(request, "stop")
        elif len(request.tokens) >= request.limit:
            self._finish(request, "length")
        return reasoning


def _reasoning_tokens(request: Request) -> int:
    return request.reasoning.tokens if request.reasoning is not None else 0
