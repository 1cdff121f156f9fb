"""The controller of speculation: how many drafts of each sequence are worth their verification.

A draft adds a row to the step. The step predictor gives the time of the row, and the acceptance so far the chance that
the row gives a token. A step with drafts also needs the host before the next step: overlap and bursts are lost, which
costs the host's time. The controller chooses the drafts with the most tokens per second, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from drut.kernels.cost import StepShape
from drut.kernels.predictor import Predictor
from drut.speculate.acceptance import Acceptance

HOST_S = 5e-4  # host time between two steps, before it was measured
HOST_RATE = 0.1  # weight of a new measurement of it
HOST_MAX_S = 0.05  # a longer pause is not the host's work: the engine had nothing to do
MARGIN = 0.05  # minimum predicted gain
FRESH = 64  # predicted times are used for this number of choices


class Proposal(NamedTuple):
    """The number of drafts that a sequence could verify now."""

    sequence: int
    drafts: int


class SpeculationController:
    """Chooses draft lengths. For the engine's thread only."""

    def __init__(self, predictor: Predictor, positions: int, *, overlap: bool) -> None:
        """`positions`: maximum drafts of a sequence; `overlap`: steps without drafts hide the host's time."""
        self._predictor, self._positions, self._overlap = predictor, positions, overlap
        self._all = Acceptance(positions)
        self._sequences: dict[int, Acceptance] = {}
        self.host_s = HOST_S
        self._times: dict[int, float] = {}  # of steps, by rows
        self._shape, self._choices = (0, 0), 0

    def observe(self, sequence: int, drafted: int, accepted: int) -> None:
        """Records the result of a verification, or of a comparison with tokens that came without one."""
        self._of(sequence).observe(drafted, accepted)

    def paused(self, seconds: float) -> None:
        """Records the time between the end of a step with drafts and the next launch."""
        if seconds < HOST_MAX_S:
            self.host_s += HOST_RATE * (seconds - self.host_s)

    def forget(self, sequence: int) -> None:
        self._sequences.pop(sequence, None)

    def expected(self, sequence: int, drafts: int) -> float:
        """Returns how many of a sequence's next `drafts` drafts are expected to be accepted."""
        return sum(self._of(sequence).survival(drafts))

    def lengths(self, proposals: Sequence[Proposal], streams: int, context: int) -> list[int]:
        """Returns for each proposal how many of its drafts to verify in a step of `streams` sequences, which have
        `context` tokens each on average. All are 0 if a step without drafts gives more tokens per second."""
        slots = sorted(((-chance, i) for i, p in enumerate(proposals)
                        for chance in self._of(p.sequence).survival(min(p.drafts, self._positions))))
        self._refresh(streams, context)
        shown = 0.0 if self._overlap else self.host_s  # without overlap all steps wait for the host
        best, rate = 0, (1 + MARGIN) * streams / (self._seconds(streams) + shown)
        if streams - sum(chance for chance, _ in slots) <= rate * (self._seconds(streams + 1) + self.host_s):
            return [0] * len(proposals)  # not even with all drafts in the time of one
        tokens = float(streams)
        for count, (chance, _) in enumerate(slots, 1):
            tokens -= chance
            made = tokens / (self._seconds(streams + count) + self.host_s)
            if made > rate:
                best, rate = count, made
        lengths = [0] * len(proposals)
        for _, i in slots[:best]:  # chances fall along a sequence, so its first drafts are taken
            lengths[i] += 1
        return lengths

    def drafts_worth(self, sequences: Sequence[int], streams: int, context: int,
                     drafting: Callable[[int], float]) -> int:
        """Returns how many drafts of each of `sequences` to make and verify in a step of `streams` sequences; 0 if a
        step without drafts gives more tokens per second. `drafting`: the seconds to make a number of drafts."""
        self._refresh(streams, context)
        shown = 0.0 if self._overlap else self.host_s
        best, rate = 0, (1 + MARGIN) * streams / (self._seconds(streams) + shown)
        gains = [sum(each) for each in zip(*(self._of(s).survival(self._positions) for s in sequences), strict=True)]
        tokens = float(streams)
        for count, gain in enumerate(gains, 1):
            tokens += gain
            made = tokens / (self._seconds(streams + count * len(sequences)) + self.host_s + drafting(count))
            if made > rate:
                best, rate = count, made
        return best

    def _of(self, sequence: int) -> Acceptance:
        if (found := self._sequences.get(sequence)) is None:
            found = self._sequences[sequence] = Acceptance(self._positions, self._all)
        return found

    def _refresh(self, streams: int, context: int) -> None:
        """Drops predicted times that are old, or of steps with other numbers of sequences or twice the context."""
        shape = streams, context.bit_length()
        self._choices += 1
        if shape != self._shape or self._choices >= FRESH:
            self._times, self._shape, self._choices, self._context = {}, shape, 0, context

    def _seconds(self, rows: int) -> float:
        """Returns the predicted time of a step of the streams with `rows` rows in all."""
        seconds = self._times.get(rows)
        if seconds is None:
            streams = self._shape[0]
            each, more = divmod(rows, streams)
            sequences = [(each + (i < more), self._context) for i in range(streams)]
            seconds = self._times[rows] = self._predictor.seconds(StepShape.over(sequences, rows))
        return seconds
