"""The progress of a request: its tokens and the counts of known, scheduled and finished rows.

    done <= computed <= known

`known` counts the tokens that the host has and the tokens in flight. `computed` counts the rows that will be computed
when the steps in flight are over; `done` counts the rows of finished steps. Chunked prefill, decode, prefix cache hits,
verification of drafts and recomputation after a preemption are all the same: rows between `computed` and `known`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drut.engine.schedule.work import ScheduledRequest


class ProgressError(AssertionError):
    """The counts of a request contradict each other. This is a bug, never a user's error."""


class Progress:
    """Holds the tokens of one request and the counts over them, and alone writes them. For the engine's thread only."""

    __slots__ = ("_computed", "_done", "_epoch", "_forced", "_inflight", "_prompt_scored", "_verifying",
                 "prompt_tokens", "tokens")

    def __init__(self, prompt: Sequence[int]) -> None:
        self.tokens = list(prompt)  # prompt and output tokens that the host has
        self.prompt_tokens = len(self.tokens)
        self._computed = self._done = self._inflight = self._prompt_scored = self._epoch = 0
        self._forced: dict[int, int] = {}  # by output index: known tokens behind tokens in flight
        self._verifying = False

    @property
    def computed(self) -> int:
        """The number of rows that are computed once the steps in flight are over."""
        return self._computed

    @property
    def done(self) -> int:
        """The number of rows that finished steps have computed: their keys and values are in the pages."""
        return self._done

    @property
    def inflight(self) -> int:
        """The number of tokens in flight: to be drawn by in-flight steps, or forced and queued behind those."""
        return self._inflight

    @property
    def prompt_scored(self) -> int:
        """The number of prompt positions whose logprob is computed or in flight."""
        return self._prompt_scored

    @property
    def epoch(self) -> int:
        """A number that preemption and the end raise: rows of steps that were launched before do not count."""
        return self._epoch

    @property
    def verifying(self) -> bool:
        """True while a verification of drafts is in flight: the number of its tokens is unknown, so no row may
        follow."""
        return self._verifying

    @property
    def known(self) -> int:
        """The number of tokens, tokens in flight included."""
        return len(self.tokens) + self._inflight

    @property
    def num_output_tokens(self) -> int:
        """The number of output tokens, tokens in flight included."""
        return self.known - self.prompt_tokens

    @property
    def output_ids(self) -> list[int]:
        """The output tokens that the host has."""
        return self.tokens[self.prompt_tokens :]

    def attach(self, hit: int) -> None:
        """Records an admission: the first `hit` rows are in the prefix cache."""
        self._computed = self._done = hit
        self._check()

    def detach(self) -> None:
        """Undoes `attach`."""
        self._computed = self._done = 0

    def launch(self, work: ScheduledRequest) -> None:
        """Records the launch of a step with `work` and of the steps of its burst."""
        if work.start != self._computed or work.epoch != self._epoch:
            raise ProgressError(f"rows from {work.start} are launched, {self._computed} are computed")
        self._computed += work.rows + work.ahead
        self._inflight += work.draws + work.ahead
        self._verifying = bool(work.drafts)
        self._prompt_scored += work.scores
        self._check()

    def land(self, work: ScheduledRequest, step: int = 0) -> bool:
        """Records that the step with `work`, or step number `step` of its burst, is over. The caller adds its tokens.

        Returns False if the request was preempted or ended since the launch: then only the tokens count, not the rows.
        """
        self._inflight -= work.draws
        self._verifying = False
        if work.epoch != self._epoch:
            return False
        self._done = work.start + work.rows + step
        return True

    def accept(self, work: ScheduledRequest, drawn: Sequence[int]) -> int:
        """Returns how many of the ids `drawn` by a verification are accepted: one for each leading draft that equals
        its
        sample, and the sample after those. Takes back the rows of the other drafts."""
        accepted = next((i for i, draft in enumerate(work.drafts) if draft != drawn[i]), len(work.drafts))
        if work.epoch == self._epoch:
            self._computed -= len(work.drafts) - accepted
            self._done = self._computed
        return accepted + 1

    def add(self, token: int) -> None:
        """Appends an output token that the host has received."""
        self.tokens.append(token)

    def retract(self, work: ScheduledRequest, steps: int) -> None:
        """Takes back the last `steps` steps of a burst, which did not run."""
        self._inflight -= steps
        if work.epoch == self._epoch:
            self._computed -= steps
            self._check()

    def roll_back(self, work: ScheduledRequest) -> None:
        """Takes back a launched step whose outputs are dropped: its tokens never arrive, its scores are computed again.

        The caller invalidates the rows by `preempt`."""
        self._inflight -= work.draws + work.ahead
        self._verifying = False
        self._prompt_scored -= work.scores

    def preempt(self) -> None:
        """Records a preemption: no row is computed any more. Tokens in flight still count."""
        self._epoch += 1
        self._computed = self._done = 0

    def end(self) -> None:
        """Records the end of the request: rows of steps in flight do not count."""
        self.preempt()

    def append_forced(self, run: Sequence[int]) -> None:
        """Queues tokens that are already known behind the tokens in flight. Their rows are computed but not sampled."""
        self._forced.update(enumerate(run, self.num_output_tokens))
        self._inflight += len(run)

    def next_forced(self) -> int | None:
        """Removes and returns the next token if it was forced, else None. The caller adds it."""
        token = self._forced.pop(len(self.tokens) - self.prompt_tokens, None) if self._forced else None
        if token is not None:
            self._inflight -= 1
        return token

    def forced_at(self, index: int) -> int | None:
        """Returns the forced token at output index `index`, or None."""
        return self._forced.get(index)

    def _check(self) -> None:
        if not 0 <= self._done <= self._computed <= self.known or self._inflight < 0:
            raise ProgressError(f"done {self._done}, computed {self._computed}, known {self.known}, "
                                f"in flight {self._inflight}")
