"""The prefix tree: lookup, locks, order of eviction, and ghosts of evicted nodes."""

from __future__ import annotations

import numpy as np
import pytest

from drut.cache.tree import PrefixNode, PrefixTree, page_key
from drut.kernels.kv import PAGE_TOKENS

A, B, C = ([t] * PAGE_TOKENS for t in (1, 2, 3))


def grow(tree: PrefixTree, tokens: list[int], first_page: int, salt: str = "") -> list[PrefixNode]:
    """Inserts the full pages of `tokens` that are missing, numbered from `first_page` on; returns the path."""
    node, path = tree.root(salt), []
    for i in range(len(tokens) // PAGE_TOKENS):
        key = page_key(tokens, i)
        if key not in node.children:
            tree.insert(node, key).held[0].page = first_page + i
        node = node.children[key]
        path.append(node)
    return path


def found(tree: PrefixTree, tokens: list[int], salt: str = "") -> list[int]:
    return [node.held[0].page for node in tree.walk(salt, tokens, len(tokens) // PAGE_TOKENS)]


def lock(tree: PrefixTree, path: list[PrefixNode]) -> None:
    for node in path:
        tree.lock(node)


def test_walks_the_longest_cached_path() -> None:
    tree = PrefixTree(ghosts=8)
    grow(tree, A + B, 0)
    grow(tree, A + C, 4)
    assert found(tree, A + B + C) == [0, 1]
    assert found(tree, A + C) == [0, 5]
    assert found(tree, B) == []
    assert [n.held[0].page for n in tree.walk("", A + B, 1)] == [0]


def test_compares_tokens_not_only_their_ends() -> None:
    tree = PrefixTree(ghosts=8)
    grow(tree, A, 0)
    for i in range(PAGE_TOKENS):
        assert found(tree, [*A[:i], 9, *A[i + 1 :]]) == []
    assert found(tree, [*map(np.int64, A)]) == [0]


def test_salts_share_nothing() -> None:
    tree = PrefixTree(ghosts=8)
    grow(tree, A, 0, salt="mine")
    assert found(tree, A, "mine") == [0]
    assert found(tree, A, "yours") == found(tree, A) == []


def test_evicts_the_least_recently_used_leaf() -> None:
    tree = PrefixTree(ghosts=8)
    grow(tree, A + B, 0)
    path = grow(tree, C, 2)
    lock(tree, path)
    tree.unlock_path(path[-1])  # C was used last
    lock(tree, path := grow(tree, A, 0))
    tree.unlock_path(path[-1])  # and now A, which is no leaf
    assert [tree.evict().held[0].page for _ in range(3)] == [1, 2, 0]
    assert tree.evictable == 0


def test_a_lock_holds_the_whole_path() -> None:
    tree = PrefixTree(ghosts=8)
    used = grow(tree, A + B, 0)
    grow(tree, A + C, 4)
    lock(tree, used)
    assert tree.evictable == 1
    assert tree.evict().held[0].page == 5
    assert found(tree, A + B) == [0, 1]
    tree.unlock_path(used[-1])
    assert tree.evictable == 2


def test_a_path_locked_twice_needs_two_unlocks() -> None:
    tree = PrefixTree(ghosts=8)
    path = grow(tree, A, 0)
    lock(tree, path)
    lock(tree, path)
    tree.unlock_path(path[-1])
    assert tree.evictable == 0
    tree.unlock_path(path[-1])
    assert tree.evictable == 1


def test_ghosts_tell_what_was_evicted_and_are_bounded() -> None:
    tree = PrefixTree(ghosts=2)
    for page, tokens in enumerate((A, B, C)):
        grow(tree, tokens, page)
        tree.evict()
    root = tree.root("")
    assert [tree.was_evicted(root, page_key(tokens, 0)) for tokens in (A, B, C)] == [False, True, True]
    assert not tree.was_evicted(tree.root("other"), page_key(C, 0))
    grow(tree, C, 7)
    assert not tree.was_evicted(root, page_key(C, 0)), "it is back"


def test_digest_covers_the_whole_path() -> None:
    tree = PrefixTree(ghosts=2)
    nodes = [*grow(tree, A + C, 0), *grow(tree, B + C, 2), *grow(tree, A + C, 4, salt="other")]
    assert len({node.digest for node in nodes}) == len(nodes)
    again = PrefixTree(ghosts=2)
    assert [n.digest for n in grow(again, A + C, 9)] == [n.digest for n in nodes[:2]]


def test_use_without_eviction_takes_no_memory() -> None:
    tree = PrefixTree(ghosts=2)
    path = grow(tree, A + B, 0)
    for _ in range(1000):
        lock(tree, path)
        tree.unlock_path(path[-1])
    assert len(tree._leaves) <= 2


def test_order_of_eviction_is_that_of_last_use() -> None:
    """Against a plain list, over random uses of many leaves."""
    dice = np.random.default_rng(0)
    tree = PrefixTree(ghosts=0)
    leaves = [grow(tree, [t] * PAGE_TOKENS, t)[0] for t in range(40)]
    order = list(range(40))
    for t in dice.integers(0, 40, 300).tolist():
        lock(tree, [leaves[t]])
        tree.unlock_path(leaves[t])
        order.remove(t)
        order.append(t)
    assert [tree.evict().held[0].page for _ in range(40)] == order
    with pytest.raises(IndexError):
        tree.evict()
