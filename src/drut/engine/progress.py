"""How far a request has come. Nothing else writes these counts.

    done <= computed <= known

`known` counts the tokens the host has and those on their way. `computed` counts the rows that are computed, once the
steps in flight are over; `done` counts those of finished steps. Prompt chunks, decoding, prefix hits, verification of
drafts and resumption all are the same difference between `known` and `computed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drut.engine.work import Work


class ProgressError(AssertionError):
    """The counts of a request contradict each other: a bug, never a user's error."""


class Progress:
    """The tokens of one request and the counts over them. Used by the engine's thread alone."""

    __slots__ = ("_computed", "_done", "_epoch", "_forced", "_inflight", "_prompt_scored", "_verifying",
                 "prompt_tokens", "tokens")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens = list(prompt)  # the prompt, then the output the host has
        self.prompt_tokens = len(self.tokens)
        self._computed = self._done = self._inflight = self._prompt_scored = self._epoch = 0
        self._forced: dict[int, int] = {}  # output index: id, of tokens behind those on their way
        self._verifying = False

    @property
    def computed(self) -> int:
        return self._computed

    @property
    def done(self) -> int:
        return self._done

    @property
    def inflight(self) -> int:
        """Tokens on their way: drawn by steps in flight, or forced behind those."""
        return self._inflight

    @property
    def prompt_scored(self) -> int:
        """Prompt positions whose logprob is computed, or on its way."""
        return self._prompt_scored

    @property
    def epoch(self) -> int:
        """Raised by preemption and by the end: rows of steps launched before do not count."""
        return self._epoch

    @property
    def verifying(self) -> bool:
        """Drafts are being verified: until that lands nobody knows how many tokens come, and no row may follow."""
        return self._verifying

    @property
    def known(self) -> int:
        return len(self.tokens) + self._inflight

    @property
    def num_output_tokens(self) -> int:
        """Output tokens, those on their way included."""
        return self.known - self.prompt_tokens

    @property
    def output(self) -> list[int]:
        """Output tokens the host has."""
        return self.tokens[self.prompt_tokens :]

    def attach(self, hit: int) -> None:
        """Admission: the first `hit` rows are in the cache."""
        self._computed = self._done = hit
        self._check()

    def detach(self) -> None:
        """Admission is withdrawn."""
        self._computed = self._done = 0

    def launch(self, work: Work) -> None:
        """A step with `work`, and the steps ahead of the host that follow it, are on their way."""
        if work.start != self._computed or work.epoch != self._epoch:
            raise ProgressError(f"rows from {work.start} are launched, {self._computed} are computed")
        self._computed += work.rows + work.ahead
        self._inflight += work.draws + work.ahead
        self._verifying = bool(work.drafts)
        self._prompt_scored += work.scores
        self._check()

    def land(self, work: Work, step: int = 0) -> bool:
        """The step with `work`, or the one that many steps after it, is over; the caller adds the tokens it drew.

        False if the request was preempted or has ended meanwhile: then its rows do not count, only its tokens."""
        self._inflight -= work.draws
        self._verifying = False
        if work.epoch != self._epoch:
            return False
        self._done = work.start + work.rows + step
        return True

    def accept(self, work: Work, drawn: Sequence[int]) -> int:
        """How many of the ids `drawn` by a verification that has landed count: one for each leading draft that equals
        its draw, and the one after those. Rows of the other drafts are retracted."""
        accepted = next((i for i, draft in enumerate(work.drafts) if draft != drawn[i]), len(work.drafts))
        if work.epoch == self._epoch:
            self._computed -= len(work.drafts) - accepted
            self._done = self._computed
        return accepted + 1

    def add(self, token: int) -> None:
        """The host has one more output token."""
        self.tokens.append(token)

    def retract(self, work: Work, steps: int) -> None:
        """The last `steps` of those that were to follow `work` did not run."""
        self._inflight -= steps
        if work.epoch == self._epoch:
            self._computed -= steps
            self._check()

    def take_back(self, work: Work) -> None:
        """The outcome of a launched step was dropped: its tokens do not come, its scores are computed again.

        The rows are the caller's to invalidate by `preempt`."""
        self._inflight -= work.draws + work.ahead
        self._verifying = False
        self._prompt_scored -= work.scores

    def preempt(self) -> None:
        """The pages are gone; tokens on their way still count."""
        self._epoch += 1
        self._computed = self._done = 0

    def end(self) -> None:
        """The request has ended; what steps in flight still bring does not count."""
        self.preempt()

    def force(self, run: Sequence[int]) -> None:
        """Queues tokens that are known already behind those on their way; their rows are computed and not sampled."""
        self._forced.update(enumerate(run, self.num_output_tokens))
        self._inflight += len(run)

    def next_forced(self) -> int | None:
        """Takes the next token if it was forced; the caller adds it."""
        token = self._forced.pop(len(self.tokens) - self.prompt_tokens, None) if self._forced else None
        if token is not None:
            self._inflight -= 1
        return token

    def forced_at(self, index: int) -> int | None:
        """The forced output token number `index`, if it is one."""
        return self._forced.get(index)

    def _check(self) -> None:
        if not 0 <= self._done <= self._computed <= self.known or self._inflight < 0:
            raise ProgressError(f"done {self._done}, computed {self._computed}, known {self.known}, "
                                f"in flight {self._inflight}")
