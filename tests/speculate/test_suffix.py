"""The suffix tree counts what a search through all texts counts, however texts come and go."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.speculate.drafter import DraftInput
from drut.speculate.suffix import PIECE, SharedOutputs, SuffixDrafter
from drut.speculate.suffix_tree import SuffixMatch, SuffixNode, SuffixTree

SMALL = 4  # ids of the texts


def occurrences(texts: Sequence[Sequence[int]], run: Sequence[int]) -> int:
    return sum(list(text[i : i + len(run)]) == list(run) for text in texts for i in range(len(text) - len(run) + 1))


def nodes(node: SuffixNode) -> int:
    return sum(1 + nodes(child) for child in node.children.values())


def check_match(texts: Sequence[Sequence[int]], context: Sequence[int], match: SuffixMatch) -> None:
    """Each draft is one of the most frequent followers, and the score is the sum of their probabilities."""
    seen, chance, score = list(context[len(context) - match.length :]), 1.0, 0.0
    for token in match.tokens:
        counts = [occurrences(texts, [*seen, t]) for t in range(SMALL)]
        assert counts[token] == max(counts)
        chance *= counts[token] / sum(counts)
        score += chance
        seen.append(token)
    assert match.score == pytest.approx(score)


RUNS = st.lists(st.integers(0, SMALL - 1), max_size=24)


@given(st.lists(st.tuples(RUNS, st.booleans()), max_size=6), RUNS, RUNS, st.integers(2, 8), st.integers(0, 1 << 30))
def test_counts_and_drafts_are_those_of_a_search(ended: list[tuple[list[int], bool]], growing: list[int],
                                                 context: list[int], depth: int, seed: int) -> None:
    tree, kept = SuffixTree(depth), list[list[int]]()
    for text, removes in ended:
        tree.extend(text)
        kept.append(tree.end())
        assert kept[-1] == text
        if removes:
            tree.remove(kept.pop(0))
    tree.extend(growing)
    texts, dice = [*kept, growing], random.Random(seed)
    for _ in range(10):
        run = [dice.randrange(SMALL) for _ in range(dice.randrange(1, depth + 1))]
        assert tree.count(run) == occurrences(texts, run)
    check_match(texts, growing, tree.follow(5))
    check_match(texts, context, tree.follow_context(context, 5))
    assert nodes(tree._root) == tree.nodes
    tree.end()
    for text in kept:
        tree.remove(text)


@given(st.lists(RUNS, max_size=8), st.integers(2, 8))
def test_nothing_is_left_of_texts_that_are_removed(texts: list[list[int]], depth: int) -> None:
    tree, kept = SuffixTree(depth), list[list[int]]()
    for text in texts:
        tree.extend(text)
        kept.append(tree.end())
    for text in kept:
        tree.remove(text)
    assert (tree.nodes, tree._root.children, tree._root.followed) == (0, {}, 0)


@given(RUNS, st.integers(1, 5), st.floats(0.0, 1.0))
def test_the_longest_good_match_wins(text: list[int], most: int, least: float) -> None:
    """No other match has a higher score."""
    tree = SuffixTree(8)
    tree.extend(text)
    best = tree.follow(most, least=least)
    assert len(best.tokens) <= min(most, best.length)
    each = [tree._walk(point, min(most, len(tree._active) - i), least) for i, point in enumerate(tree._active)]
    assert best.score == max((score for _, score in each), default=0.0)


def ask(drafter: SuffixDrafter, sequence: int, tokens: list[int], prompt: int = 0, salt: str = "") -> list[int]:
    return list(drafter.propose([DraftInput(sequence, tokens, 4, prompt, salt)])[0])


def test_an_output_is_drafted_from_after_its_end_but_not_across_salts() -> None:
    drafter = SuffixDrafter(depth=8)
    ask(drafter, 1, [9, 9, 1, 2, 3, 4, 5], prompt=2)
    drafter.forget(1)
    assert ask(drafter, 2, [7, 1, 2, 3]) == [4, 5]
    assert ask(drafter, 3, [7, 1, 2, 3], salt="mine") == []
    ask(drafter, 3, [7, 1, 2, 3, 8, 8], salt="mine")
    drafter.forget(3)
    assert ask(drafter, 4, [7, 1, 2, 3]) == [4, 5]
    assert ask(drafter, 5, [6, 9]) == [], "prompts are not shared"


def test_past_outputs_are_bounded_and_the_oldest_go_first() -> None:
    shared = SharedOutputs(depth=4, capacity=2 * PIECE)
    for i in range(5):
        shared.add([i] * PIECE)
        shared.settle()
        assert shared.tokens <= 2 * PIECE
    assert [shared.tree.count([i]) for i in range(5)] == [0, 0, 0, PIECE, PIECE]
    shared.add(list(range(10 * PIECE)))
    for _ in range(10):
        shared.settle()
    assert shared.tokens == 2 * PIECE
    assert shared.tree.count([10 * PIECE - 1]) == 1
    nothing = SharedOutputs(depth=4, capacity=0)
    nothing.add([1, 2, 3])
    nothing.settle()
    assert nothing.tree.nodes == 0
