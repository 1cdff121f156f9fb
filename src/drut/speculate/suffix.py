"""Suffix drafting: what most often followed the longest runs of last tokens, in the sequence itself and in earlier
outputs.

Each sequence has a suffix tree of its prompt and output, and all share one tree of past outputs, which forgets the
oldest when it is full. Of both trees the drafts with the higher score are proposed: the number of tokens that is
expected to be accepted, by the counts in the tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from drut.speculate.drafter import DraftInput, VerifiedDrafts
from drut.speculate.suffix_tree import SuffixTree

INDEX_ROWS = 1024  # maximum tokens that one call adds to a tree, so that a long prompt stalls no stream
PIECE = 512  # past outputs enter the shared tree, and leave it, in pieces of this number of tokens


class SharedOutputs:
    """The suffix tree of past outputs: at most `capacity` tokens; the oldest are removed first."""

    def __init__(self, depth: int, capacity: int) -> None:
        self.tree, self._capacity = SuffixTree(depth), capacity
        self._texts: deque[list[int]] = deque()  # in the tree, the oldest first
        self._pending: deque[list[int]] = deque()  # not yet in the tree
        self.tokens = 0

    def add(self, output: Sequence[int]) -> None:
        """Queues an output; of one longer than the capacity only the end."""
        kept = output[max(0, len(output) - self._capacity) :] if self._capacity else ()
        self._pending.extend(list(kept[at : at + PIECE]) for at in range(0, len(kept), PIECE))
        while len(self._pending) * PIECE > self._capacity + PIECE:
            self._pending.popleft()

    def settle(self) -> None:
        """Moves one queued piece into the tree."""
        if not self._pending:
            return
        piece = self._pending.popleft()
        while self._texts and self.tokens + len(piece) > self._capacity:
            gone = self._texts.popleft()
            self.tree.remove(gone)
            self.tokens -= len(gone)
        self.tree.extend(piece)
        self._texts.append(self.tree.end())
        self.tokens += len(piece)


class SuffixSequence:
    """The tree of one running sequence."""

    def __init__(self, depth: int) -> None:
        self.tree = SuffixTree(depth)
        self.done = 0  # tokens in the tree
        self.last: DraftInput | None = None

    def read(self, given: DraftInput) -> bool:
        """Adds new tokens to the tree. Returns False if there are too many for one call."""
        self.last = given
        new = given.tokens[self.done : self.done + INDEX_ROWS]
        self.tree.extend(new)
        self.done += len(new)
        return self.done == len(given.tokens)


class SuffixDrafter:
    """Drafts by suffix trees. Sequences with a salt share nothing."""

    def __init__(self, *, depth: int = 24, capacity: int = 100_000, factor: float = 2.0, least: float = 0.3) -> None:
        """`depth`: maximum tokens of a match and its drafts; `capacity`: maximum tokens of past outputs; `factor`:
        drafts for each token of a match; `least`: minimum probability of a draft."""
        self._depth, self._factor, self._least = depth, factor, least
        self.shared = SharedOutputs(depth, capacity)
        self._sequences: dict[int, SuffixSequence] = {}

    def propose(self, inputs: Sequence[DraftInput]) -> list[Sequence[int]]:
        self.shared.settle()
        return [self._propose(each) for each in inputs]

    def _propose(self, given: DraftInput) -> Sequence[int]:
        sequence = self._sequences.get(given.sequence)
        if sequence is None:
            sequence = self._sequences[given.sequence] = SuffixSequence(self._depth)
        if not sequence.read(given):
            return ()
        rules = given.max_drafts, self._factor, 0.0, self._least
        own = sequence.tree.follow(*rules)
        if given.salt or not self.shared.tokens or own.score >= given.max_drafts:
            return own.tokens
        others = self.shared.tree.follow_context(given.tokens[-self._depth :], *rules)
        return max(own, others, key=lambda match: (match.score, match.length)).tokens

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """The trees read the tokens when drafts are proposed."""

    def method(self, sequence: int) -> str:
        return "suffix"

    def forget(self, sequence: int) -> None:
        """Drops the tree of a sequence that has ended. Its output enters the shared tree."""
        ended = self._sequences.pop(sequence, None)
        if ended is not None and ended.last is not None and not ended.last.salt:
            self.shared.add(ended.last.tokens[ended.last.prompt_tokens :])
