"""KV groups with a window: which pages a sequence frees, where a prefix can resume, and all counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.cache.cache import BlockTable, KvCache
from drut.cache.check import check_cache
from drut.cache.groups import KvGroup, pages_for
from drut.cache.kinds import FullGroup, WindowGroup
from drut.cache.pool import KvCorruptionError, PagePool
from drut.kernels.descriptor import HOLE
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.pool import HostPool

P = PAGE_TOKENS
LONG = list(range(20 * P))  # twenty pages, all different
STEP = 8  # rows of the largest step, where it matters


def make_cache(windows: tuple[int, ...], pages: tuple[int, ...], *, prefix_cache: bool = True) -> KvCache:
    groups: list[KvGroup] = [WindowGroup(w, STEP) if w else FullGroup() for w in windows]
    pools = (PagePool(HostPool(np.zeros((n, 64), np.uint8))) for n in pages)
    return KvCache(*pools, prefix_cache=prefix_cache, groups=groups)


def grow(cache: KvCache, table: BlockTable, tokens: list[int], start: int = 0, step: int = P) -> BlockTable:
    """Computes `tokens` from `start` on, `step` at a time."""
    for done in [*range(start + step, len(tokens), step), len(tokens)]:
        assert cache.reserve(table, done)
        cache.commit(table, tokens, done)
    return table


def compute(cache: KvCache, tokens: list[int], step: int = P) -> BlockTable:
    table = cache.table()
    return grow(cache, table, tokens, cache.attach(table, tokens), step)


def resumable(windows: tuple[int, ...], kept: list[list[bool]]) -> int:
    """Pages of a hit, where the tree has so many nodes and each group only what is `kept` of them."""
    cache, count = make_cache(windows, (64,) * len(windows)), len(kept[0])
    tokens = LONG[: count * P + 1]
    cache.release(compute(cache, tokens))
    for kind, has in zip(cache.kinds, kept, strict=True):
        for node, there in zip(cache.tree.walk("", tokens, count), has, strict=True):
            if not there:
                kind.drop(node)
    return cache.cached_prefix("", tokens) // P


@pytest.mark.parametrize("window", [1, 2, P - 1, P, P + 1, 40])
def test_the_first_page_is_that_of_the_first_position_seen(window: int) -> None:
    group = WindowGroup(window, STEP)
    for position in range(5 * P):
        seen = range(max(0, position + 1 - window), position + 1)
        assert group.first(position) == seen[0] // P


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=2, max_size=2),
       st.lists(st.integers(1, 80), min_size=2, max_size=2))
def test_a_prefix_counts_where_every_window_is_whole(kept: list[list[bool]], windows: list[int]) -> None:
    def can(pages: int) -> bool:
        return all(all(has[p // P] for p in range(max(0, pages * P + 1 - window), pages * P))
                   for window, has in zip(windows, kept, strict=True))

    assert resumable(tuple(windows), kept) == max(n for n in range(10) if can(n))


def test_a_group_of_the_whole_context_lacks_nothing_before() -> None:
    assert FullGroup().resume([True, True, False, True], 4) == 2
    assert resumable((0, P), [[True] * 4, [False, True, True, False]]) == 3


def test_pages_go_as_the_window_passes_and_stay_cached() -> None:
    cache = make_cache((0, 2 * P), (32, 32))
    table = compute(cache, LONG)
    assert [table.held(0), table.held(1)] == [20, 2]
    assert table.maps[1][:18].tolist() == [HOLE] * 18
    assert HOLE not in table.maps[1][18:]
    assert (cache.pools[1].private, cache.pools[1].cached, cache.evictable(1)) == (0, 20, 18)
    check_cache(cache, [table])
    cache.release(table)
    check_cache(cache, [])


def test_without_a_prefix_cache_they_are_free() -> None:
    cache = make_cache((0, 2 * P), (32, 5), prefix_cache=False)
    table = compute(cache, LONG)
    assert (cache.pools[1].free, cache.pools[1].private, cache.pools[0].private) == (3, 2, 20)
    check_cache(cache, [table])
    cache.release(table)
    assert cache.pools[1].free == 5


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_a_long_sequence_of_windows_alone_gets_along_with_few_pages(prefix_cache: bool) -> None:
    group = WindowGroup(40, STEP)
    cache = make_cache((40,), (group.bound,), prefix_cache=prefix_cache)
    assert cache.room(1 << 20) == 1 << 20
    tokens = list(range(500 * P))
    table = cache.table()
    for done in range(STEP, len(tokens), STEP):
        assert cache.reserve(table, min(done + 2 * STEP, len(tokens)))  # a step runs, the next one is filled
        cache.commit(table, tokens, done)
        assert table.held(0) <= group.bound
    check_cache(cache, [table])
    cache.release(table)
    assert cache.tree.size <= max(500, 8 * group.bound)
    cache.clear()
    assert cache.pool.free == cache.pool.total


def test_nodes_of_windows_alone_are_bounded() -> None:
    cache = make_cache((P,), (8,))
    for text in range(30):
        cache.release(compute(cache, [text, *LONG]))
        assert cache.tree.size <= 8 * 8
        check_cache(cache, [])


def test_a_hit_past_the_window_needs_its_last_pages_only() -> None:
    cache = make_cache((0, 2 * P), (32, 5))
    first = compute(cache, LONG[: 8 * P + 3])
    cache.release(first)
    table = cache.table()
    assert cache.attach(table, LONG) == 8 * P
    assert (table.first, table.maps[1][:6].tolist()) == ([0, 6], [HOLE] * 6)
    check_cache(cache, [table])
    grow(cache, table, LONG, 8 * P)
    check_cache(cache, [table])


def test_the_last_full_page_can_be_gone_on_from_whatever_else_goes() -> None:
    """At its last token the window begins a page later than at the end of the last full page."""
    for tail in range(P):
        cache = make_cache((0, 20), (64, 64))
        cache.release(compute(cache, LONG[: 8 * P + tail]))
        while cache.evictable(1) > 2:
            cache.evict(1)
        assert cache.cached_prefix("", LONG) == 8 * P


def test_a_prompt_that_parts_where_the_window_has_passed_computes_again() -> None:
    cache = make_cache((0, P), (64, 3))
    cache.release(compute(cache, LONG[: 10 * P + 1]))
    other = cache.table()
    assert cache.attach(other, LONG[: 6 * P] + [7] * P) == 0
    cache.count_lookup(other, LONG[: 6 * P] + [7] * P)
    assert cache.stats.evicted_miss == P
    grow(cache, other, LONG[: 6 * P] + [7] * P)
    check_cache(cache, [other])
    assert cache.cached_prefix("", LONG[: 6 * P + 1]) == 6 * P, "what was computed again fills the hole"


def test_what_a_window_passed_by_goes_before_the_end_of_an_answer() -> None:
    cache = make_cache((0, 2 * P), (64, 8))
    cache.release(compute(cache, [1] * (3 * P)))
    compute(cache, LONG)
    assert cache.cached_prefix("", [1] * (4 * P)) == 3 * P


def test_a_full_page_that_goes_takes_the_others_with_it() -> None:
    cache = make_cache((0, 2 * P), (6, 20))
    cache.release(compute(cache, LONG[: 6 * P]))
    cache.evict()
    assert (cache.pools[0].free, cache.pools[1].free) == (1, 15)
    check_cache(cache, [])


def test_reserve_takes_from_all_groups_or_none() -> None:
    cache = make_cache((0, P), (8, 4))
    table = cache.table()
    assert not cache.reserve(table, 5 * P)
    assert [len(m) for m in table.maps] == [0, 0]
    assert cache.reserve(table, 4 * P)
    assert not cache.reserve(cache.table(), 1)


def test_groups_and_pools_go_together() -> None:
    with pytest.raises(ValueError, match="1 pools for 2 KV groups"):
        make_cache((0, 5), (3,))


@pytest.mark.parametrize("fault", [
    "a page of a window kept too long", "one lock too many", "a page lost", "an own page mapped twice",
    "a page swapped"])
def test_check_notices(fault: str) -> None:
    cache = make_cache((0, 2 * P), (64, 64))
    first, second = compute(cache, LONG), compute(cache, [7] * (P + 1))
    check_cache(cache, [first, second])
    assert first.node is not None
    if fault == "a page of a window kept too long":
        first.maps[1][3] = 3
    elif fault == "one lock too many":
        cache.kinds[1].lock(first.node)  # type: ignore[attr-defined]
    elif fault == "a page lost":
        first.node.held[1].page = HOLE
    elif fault == "an own page mapped twice":
        second.maps[1][1] = second.maps[1][0]
    elif fault == "a page swapped":
        first.maps[1][-2:] = first.maps[1][:-3:-1]
    with pytest.raises(KvCorruptionError):
        check_cache(cache, [first, second])


WINDOWS = [(0, 1), (0, 20), (0, P), (0, 40, 7), (20,), (2 * P,), (50, 3)]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(WINDOWS), st.booleans(), st.randoms(use_true_random=False))
def test_random_use_keeps_the_books(windows: tuple[int, ...], prefix_cache: bool, dice) -> None:
    """Tables come, grow and go over a few texts; a model of tokens knows the contents of every visible page."""
    pages = [dice.choice([8, 14, 30]) for _ in windows]
    cache = make_cache(windows, tuple(pages), prefix_cache=prefix_cache)
    held: list[dict[int, tuple[int, ...]]] = [{} for _ in windows]  # by group and page: the tokens that lead to it
    texts = [[dice.randrange(3)] * dice.randrange(1, 3 * P) + LONG[: 6 * P] for _ in range(3)]
    tables: list[tuple[BlockTable, list[int], int]] = []
    for _ in range(80):
        if not tables or dice.random() < 0.3:
            tokens = dice.choice(texts)[: dice.randrange(1, 8 * P)]
            table = cache.table(dice.choice(["", "salt"]))
            tables.append((table, tokens, cache.attach(table, tokens)))
        elif dice.random() < 0.65:
            i = dice.randrange(len(tables))
            table, tokens, done = tables[i]
            end = min(len(tokens), done + dice.randrange(1, 2 * P))
            if cache.reserve(table, end):
                for group, window in enumerate(windows):
                    begin = max(0, done + 1 - window) if window else 0
                    for p in range(begin // P, done // P):
                        page = table.maps[group][p]
                        assert held[group][page] == (table.salt, *tokens[: (p + 1) * P]), "what the next row sees"
                    for p in range(done // P, end // P):
                        held[group][table.maps[group][p]] = (table.salt, *tokens[: (p + 1) * P])
                cache.commit(table, tokens, end)
                tables[i] = table, tokens, end
                assert [len(m) for m in table.maps] == [len(table.pages)] * len(windows)
                assert len(table.pages) >= pages_for(end)
        else:
            cache.release(tables.pop(dice.randrange(len(tables)))[0])
        check_cache(cache, [t for t, _, _ in tables])
        assert all(pool.free + pool.private + pool.cached == pool.total for pool in cache.pools)
    for table, _, _ in tables:
        cache.release(table)
    cache.clear()
    assert [pool.free for pool in cache.pools] == pages
