"""The output processor: turns new tokens of a request into text, checks stop strings, collects logprobs and makes the
completion at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from drut.engine.request.output import Chunk, Completion, Logprob, Logprobs
from drut.engine.request.request import Request
from drut.engine.request.update import ScoredTokens, Update
from drut.errors import DrutError
from drut.model.tokenizer import Detokenizer, StopChecker, StopStrings, Tokenizer
from drut.observe.trace import RequestTrace

NOT_FINITE = "the model's logits are not finite; its weights are damaged or overflow"


class OutputProcessor:
    """Processes the updates of one request. Tokens after a stop string are dropped, also if steps in flight bring
    them."""

    def __init__(self, request: Request, tokenizer: Tokenizer | None, stops: StopStrings, load_s: float,
                 *, lean: bool = False) -> None:
        """`lean`: forgets what `take` has returned, so that memory does not grow with the output."""
        self.request, self._tokenizer, self._load_s, self._lean = request, tokenizer, load_s, lean
        params = request.params
        self._detokenizer = Detokenizer(tokenizer, skip_special=params.skip_special_tokens,
                                        shown=params.shown_special_ids) if tokenizer else None
        self._stops = StopChecker(stops, include=params.include_stop_str_in_output)
        self._reasoning_tokens = 0  # in the updates so far; the request itself may be some tokens ahead
        self._ids: list[int] = []
        self._text: list[str] = []
        self._logprobs: list[Logprobs] = []
        self._lengths: list[int] = []  # number of characters of each token that has logprobs
        self._prompt_logprobs: list[Logprobs | None] = [None]
        self._taken = self._ids_taken = self._scores_taken = 0
        self._prompt_taken = False
        self.stopped = False
        self.done = False
        self.taken = False  # whether `take` has returned the completion

    def push(self, update: Update) -> bool:
        """Processes an update. Returns True if a stop string has just ended the text, so that the request must end."""
        self._prompt_logprobs += [self._entry(s) for s in update.prompt_scored]
        if update.token is None or self.stopped:
            return False
        self._ids.append(update.token)
        thinks, self._reasoning_tokens = update.reasoning, update.reasoning_tokens
        text, shown = "", self.request.params.include_stop_str_in_output or not self._ended_by(update.token)
        if self._detokenizer is not None and shown:
            text = self._detokenizer.push((update.token,))
            self._add(text, thinks)
        if update.scored is not None:
            self._logprobs.append(self._entry(update.scored))
            self._lengths.append(len(text))
        return self.stopped

    def _ended_by(self, token: int) -> bool:
        return self.request.finish_reason == "stop" and token in self.request.ends

    def _add(self, text: str, thinks: bool = False) -> None:
        """Appends text. Stop strings are checked from `min_tokens` on, and not in reasoning."""
        if len(self._ids) >= self.request.params.min_tokens and not thinks:
            text, self.stopped = self._stops.push(text)
        elif thinks:
            text = self._stops.flush() + text  # text that was held back before more reasoning
        self._text.append(text)

    def end(self) -> None:
        """Flushes the detokenizer. Call when the request has ended."""
        if self.done:
            return
        self.done = True
        if self._detokenizer is not None and not self.stopped:
            self._add(self._detokenizer.flush())
            self._text.append("" if self.stopped else self._stops.flush())

    def take(self) -> Chunk:
        """Returns text and ids since the last call, with the completion at the end. Raises DrutError if the request
        failed."""
        if self.failed:
            raise self.why_failed
        text, ids = "".join(self._text[self._taken :]), self._ids[self._ids_taken :]
        scores = lengths = None
        if self.request.params.logprobs is not None:
            scores, lengths = self._logprobs[self._scores_taken :], self._lengths[self._scores_taken :]
        if self._lean:
            self._text.clear()
            self._logprobs.clear()
            self._lengths.clear()
        self._taken, self._ids_taken, self._scores_taken = len(self._text), len(self._ids), len(self._logprobs)
        self.taken = self.done
        return Chunk(text=text, token_ids=ids, completion=self.completion() if self.done else None,
                     index=self.request.choice, logprobs=scores, prompt_logprobs=self._take_prompt(),
                     text_lengths=lengths)

    def _take_prompt(self) -> list[Logprobs | None] | None:
        """Returns the prompt logprobs once, when the first token shows that they are complete. If lean, the new
        ones."""
        if self._lean:
            fresh, self._prompt_logprobs = self.prompt_logprobs, []
            return fresh or None
        if self._prompt_taken or not (self._ids or self.done):
            return None
        self._prompt_taken = True
        return self.prompt_logprobs and list(self.prompt_logprobs)

    def completion(self, prompt_logprobs: list[Logprobs | None] | None = None) -> Completion:
        """Returns the completion. `prompt_logprobs`: of the first choice, for the other choices."""
        r = self.request
        assert r.finish_reason is not None
        reason = "stop" if self.stopped else r.finish_reason
        scored = prompt_logprobs if prompt_logprobs is not None else self.prompt_logprobs
        made = Completion(
            text="".join(self._text), token_ids=list(self._ids), finish_reason=reason, prompt_tokens=r.prompt_tokens,
            cached_tokens=r.cached_tokens or 0, completion_tokens=len(self._ids), seed=r.seed, index=r.choice,
            timings=self._timings(), logprobs=self._logprobs if r.params.logprobs is not None else None,
            prompt_logprobs=scored, why=self._why(), stop_reason=self._stop_reason(),
            reasoning_tokens=self._reasoning_tokens if r.reasoning is not None else None)
        return replace(made, token_ids=[], logprobs=None, prompt_logprobs=None) if self._lean else made

    def _stop_reason(self) -> str | int | None:
        if self.stopped:
            return self._stops.matched
        last = self._ids[-1] if self._ids else None
        return last if self.request.finish_reason == "stop" and last in self.request.params.stop_token_ids else None

    @property
    def failed(self) -> bool:
        return self.done and not self.stopped and self.request.finish_reason == "error"

    @property
    def why_failed(self) -> DrutError:
        return self.request.failure or DrutError(NOT_FINITE)

    @property
    def prompt_logprobs(self) -> list[Logprobs | None] | None:
        return self._prompt_logprobs if self.request.scores_prompt else None

    def _entry(self, scored: ScoredTokens) -> Logprobs:
        entry = {i: Logprob(p, rank, self._decode(i)) for rank, (i, p) in enumerate(scored.top, 1)}
        entry.setdefault(scored.token, Logprob(scored.logprob, scored.rank, self._decode(scored.token)))
        return entry

    def _decode(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode(errors="replace") if self._tokenizer else ""

    def _timings(self) -> dict[str, float]:
        """Returns the seconds from arrival to the first token, and the rates of prefill and decode."""
        r, timings = self.request, {"load_s": self._load_s}
        if r.first_token_at is None or r.finished_at is None:
            return timings
        ttft, decode = r.first_token_at - r.arrived, r.finished_at - r.first_token_at
        timings["ttft_s"] = ttft
        timings["prefill_tokens_per_s"] = r.prompt_tokens / ttft if ttft > 0 else 0.0
        timings["decode_tokens_per_s"] = (len(self._ids) - 1) / decode if decode > 0 else 0.0
        return timings

    def _why(self) -> RequestTrace:
        r = self.request
        queued = (r.why.admitted_at or r.finished_at or r.arrived) - r.arrived
        return RequestTrace(queued_s=queued, waited_for=r.why.waited_for, steps=r.why.steps,
                            preemptions=r.why.preemptions, cached_tokens=r.cached_tokens or 0,
                            drafted=r.why.drafted, accepted=r.why.accepted)


def completions(answers: Iterable[OutputProcessor]) -> list[Completion]:
    """Returns the completions of one prompt's choices. Prompt logprobs are computed once; each completion has a
    copy."""
    answers = list(answers)
    first = answers[0].prompt_logprobs
    return [a.completion(first and [entry and dict(entry) for entry in first]) for a in answers]
