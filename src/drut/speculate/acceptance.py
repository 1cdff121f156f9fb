"""Estimates how many drafts will be accepted, from the drafts so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

KEPT = 0.9  # share of the old counts that an observation of a sequence leaves
KEPT_OF_ALL = 0.98  # the same over all sequences
PRIOR = 0.5  # probability that a draft is accepted, before anything was observed
PRIOR_WEIGHT = 1.0  # observations that the prior counts as
BACKOFF_WEIGHT = 2.0  # observations that the estimate over all sequences counts as, in that of one


class Acceptance:
    """Estimates for each draft position the probability that a draft is accepted if those before it were.

    The estimate is a mean with exponentially decreasing weights. With a `parent`, which observes the drafts of all
    sequences, it starts from the parent's.
    """

    def __init__(self, positions: int, parent: Acceptance | None = None) -> None:
        self._parent, self._kept = parent, KEPT if parent is not None else KEPT_OF_ALL
        self._hits, self._trials = [0.0] * positions, [0.0] * positions

    def observe(self, drafted: int, accepted: int) -> None:
        """Records that the first `accepted` of `drafted` drafts were accepted, and the next one, if any, was not."""
        for i in range(min(accepted + 1, drafted, len(self._hits))):
            self._hits[i] = self._kept * self._hits[i] + (i < accepted)
            self._trials[i] = self._kept * self._trials[i] + 1
        if self._parent is not None:
            self._parent.observe(drafted, accepted)

    def rates(self, drafts: int) -> list[float]:
        """Returns for each of `drafts` positions the probability of its draft, given that those before it are
        accepted. There are at most as many as positions."""
        hits, trials = self._hits[:drafts], self._trials[:drafts]
        if self._parent is None:
            return [(h + PRIOR * PRIOR_WEIGHT) / (t + PRIOR_WEIGHT) for h, t in zip(hits, trials, strict=True)]
        return [(h + p * BACKOFF_WEIGHT) / (t + BACKOFF_WEIGHT)
                for h, t, p in zip(hits, trials, self._parent.rates(drafts), strict=True)]

    def survival(self, drafts: int) -> list[float]:
        """Returns for each of `drafts` positions the probability that all drafts up to it are accepted."""
        return list(accumulate(self.rates(drafts), mul))


class Outcome(NamedTuple):
    """How many drafts were compared with tokens, and how many leading ones were equal."""

    drafted: int
    accepted: int


class DraftLog:
    """Compares drafts with the tokens that come, whether or not the drafts are verified. One draft of a sequence is
    open at a time."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, tuple[int, ...]]] = {}

    def settle(self, sequence: int, tokens: Sequence[int]) -> Outcome | None:
        """Returns the outcome of the open drafts of a sequence that now has `tokens`, if it is known, and closes
        them."""
        if (found := self._open.get(sequence)) is None:
            return None
        start, drafts = found
        compared = min(len(tokens) - start, len(drafts))
        for i in range(compared):
            if drafts[i] != tokens[start + i]:
                del self._open[sequence]
                return Outcome(i + 1, i)
        if compared < len(drafts):
            return None
        del self._open[sequence]
        return Outcome(compared, compared)

    def add(self, sequence: int, start: int, drafts: Sequence[int]) -> None:
        """Opens drafts of the tokens from position `start` on, unless others are open."""
        if drafts and sequence not in self._open:
            self._open[sequence] = start, tuple(drafts)

    def forget(self, sequence: int) -> None:
        self._open.pop(sequence, None)
