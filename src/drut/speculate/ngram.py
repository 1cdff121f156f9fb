"""N-gram drafting (prompt lookup): the tokens that followed an earlier occurrence of the last tokens.

The index of a sequence maps each n-gram of `shortest` to `longest` tokens to the position behind one of its
occurrences. It grows with the sequence, in constant time for each token. By default that is the most recent one: of
texts of all kinds it had as many drafts accepted as the earliest, or more.
"""

from __future__ import annotations

from collections.abc import Sequence

from drut.speculate.drafter import DraftInput, VerifiedDrafts

INDEX_ROWS = 2048  # maximum tokens that one call indexes for a sequence, so that a long prompt stalls no stream


class NgramIndex:
    """The n-grams of one sequence."""

    def __init__(self, shortest: int, longest: int, *, recent: bool = True) -> None:
        """`recent`: positions are of the most recent occurrence, else of the earliest."""
        self._lengths, self._recent = range(shortest, longest + 1), recent
        self._positions: list[dict[tuple[int, ...], int]] = [{} for _ in self._lengths]
        self._done = 0  # n-grams that end at or before this position are in the index

    def extend(self, tokens: Sequence[int], most: int = INDEX_ROWS) -> bool:
        """Indexes n-grams up to, but without, the last position of `tokens`: those that a token follows. Returns False
        if more than `most` were missing and some still are."""
        end = min(len(tokens) - 1, self._done + most)
        for stop in range(self._done + 1, end + 1):
            for length, positions in zip(self._lengths, self._positions, strict=True):
                if length > stop:
                    break
                ngram = tuple(tokens[stop - length : stop])
                if self._recent:
                    positions[ngram] = stop
                else:
                    positions.setdefault(ngram, stop)
        self._done = max(self._done, end)
        return self._done >= len(tokens) - 1

    def find(self, tokens: Sequence[int]) -> int | None:
        """Returns the position of the token that followed the longest n-gram that `tokens` end with; None if there is
        none."""
        for length, positions in zip(reversed(self._lengths), reversed(self._positions), strict=True):
            if length <= len(tokens) and (found := positions.get(tuple(tokens[-length:]))) is not None:
                return found
        return None


class NgramDrafter:
    """Drafts by n-grams of the same sequence, prompt included."""

    def __init__(self, shortest: int = 2, longest: int = 4, *, recent: bool = True) -> None:
        self._settings = shortest, longest, recent
        self._indexes: dict[int, NgramIndex] = {}

    def propose(self, inputs: Sequence[DraftInput]) -> list[Sequence[int]]:
        return [self._propose(each) for each in inputs]

    def _propose(self, given: DraftInput) -> Sequence[int]:
        index = self._indexes.get(given.sequence)
        if index is None:
            shortest, longest, recent = self._settings
            index = self._indexes[given.sequence] = NgramIndex(shortest, longest, recent=recent)
        if not index.extend(given.tokens) or (at := index.find(given.tokens)) is None:
            return ()
        return copied(given.tokens, at, given.max_drafts)

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        """The index reads the tokens when it proposes."""

    def method(self, sequence: int) -> str:
        return "ngram"

    def forget(self, sequence: int) -> None:
        self._indexes.pop(sequence, None)


def copied(tokens: Sequence[int], start: int, count: int) -> list[int]:
    """Returns `count` tokens from position `start` on. Behind the end of `tokens` the copy repeats itself, as in a text
    with a period."""
    found = list(tokens[start : start + count])
    period = len(found)
    for i in range(period, count):
        found.append(found[i - period])
    return found
