"""The n-gram index finds what a search through all tokens finds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.speculate.drafter import DraftInput
from drut.speculate.ngram import NgramDrafter, NgramIndex, copied

TEXTS = st.lists(st.integers(0, 3), max_size=40)


def search(tokens: Sequence[int], shortest: int, longest: int, recent: bool) -> int | None:
    """The position behind an earlier occurrence of the longest n-gram that the tokens end with."""
    for n in range(longest, shortest - 1, -1):
        ends = [i for i in range(n, len(tokens)) if list(tokens[i - n : i]) == list(tokens[-n:])]
        if n <= len(tokens) and ends:
            return ends[-1] if recent else ends[0]
    return None


@given(TEXTS, st.integers(1, 4), st.integers(0, 3), st.booleans(), st.integers(1, 7))
def test_the_index_finds_what_a_search_finds(tokens: list[int], shortest: int, more: int, recent: bool,
                                             most: int) -> None:
    index = NgramIndex(shortest, shortest + more, recent=recent)
    for end in range(1, len(tokens) + 1):
        while not index.extend(tokens[:end], most):
            pass
        assert index.find(tokens[:end]) == search(tokens[:end], shortest, shortest + more, recent)


@pytest.mark.parametrize(("tokens", "start", "count", "wanted"), [
    ([1, 2, 3, 4], 1, 2, [2, 3]), ([1, 2, 3, 4], 2, 5, [3, 4, 3, 4, 3]), ([1], 0, 0, [])])
def test_a_copy_repeats_itself_behind_the_end(tokens: list[int], start: int, count: int, wanted: list[int]) -> None:
    assert copied(tokens, start, count) == wanted


def test_a_long_prompt_is_indexed_over_several_calls() -> None:
    drafter, text = NgramDrafter(2, 3), list(range(3000))
    asked = DraftInput(1, [*text, 7, 8], 3)
    assert [list(drafter.propose([asked])[0]) for _ in range(2)] == [[], [9, 10, 11]]
    drafter.forget(1)
    drafter.forget(2)
