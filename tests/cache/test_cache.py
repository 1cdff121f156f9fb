"""Block tables over one pool: sharing, copies that give way, eviction, and the count of it all."""

from __future__ import annotations

import random

import numpy as np
import pytest

from drut.cache.cache import BlockTable, KvCache
from drut.cache.check import check_cache
from drut.cache.groups import pages_for
from drut.cache.pool import KvCorruptionError, PagePool
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.pool import HostPool

P = PAGE_TOKENS
LONG = list(range(5 * P))  # five pages, all different


def make_cache(pages: int = 16, *, prefix_cache: bool = True) -> KvCache:
    return KvCache(PagePool(HostPool(np.zeros((pages, 64), np.uint8))), prefix_cache=prefix_cache)


def compute(cache: KvCache, tokens: list[int], salt: str = "") -> BlockTable:
    """A table for `tokens`, all of them computed."""
    table = BlockTable(salt)
    cache.attach(table, tokens)
    assert cache.reserve(table, len(tokens))
    cache.commit(table, tokens, len(tokens))
    return table


def test_a_finished_sequence_leaves_its_full_pages() -> None:
    cache = make_cache()
    table = compute(cache, LONG[: 2 * P + 3])
    assert (cache.pool.cached, cache.pool.private) == (2, 1)
    cache.release(table)
    assert (len(table.pages), table.shared, table.node) == (0, 0, None)
    assert (cache.pool.cached, cache.pool.free) == (2, 14)
    assert cache.cached_prefix("", LONG) == 2 * P


def test_one_token_at_least_stays_to_be_computed() -> None:
    cache = make_cache()
    cache.release(compute(cache, LONG[: 2 * P]))
    assert cache.attach(BlockTable(), LONG[: 2 * P]) == P
    assert cache.attach(BlockTable(), LONG[: 2 * P + 1]) == 2 * P
    assert cache.attach(BlockTable(), LONG[:1]) == 0


def test_two_tables_map_the_same_pages() -> None:
    cache = make_cache()
    first = compute(cache, LONG)
    second = BlockTable()
    assert cache.attach(second, LONG) == 4 * P
    assert second.pages == first.pages[:4]
    check_cache(cache, [first, second])
    cache.release(first)
    check_cache(cache, [second])
    assert cache.tree.evictable == 1  # the page only the first used


def test_a_copy_gives_way_and_the_table_is_rewritten_first() -> None:
    cache = make_cache()
    tables = [BlockTable(), BlockTable()]
    for table in tables:  # both compute the same tokens at the same time
        assert cache.reserve(table, 2 * P + 1)
    freed: list[list[int]] = []
    free = cache.pool.free_private

    def watch(pages: list[int]) -> None:
        assert not any(page in table.pages for page in pages for table in tables), "freed while mapped"
        freed.append(pages)
        free(pages)

    cache.pool.free_private = watch  # type: ignore[method-assign, assignment]
    copies = tables[1].pages[:2]
    for table in tables:
        cache.commit(table, LONG, 2 * P + 1)
    assert tables[0].pages[:2] == tables[1].pages[:2]
    assert tables[0].pages[2] != tables[1].pages[2]
    assert freed == [[page] for page in copies]
    check_cache(cache, tables)


def test_commit_shares_only_what_is_full_and_computed() -> None:
    cache = make_cache()
    table = BlockTable()
    cache.reserve(table, len(LONG))
    for computed, shared in ((0, 0), (P - 1, 0), (P, 1), (3 * P + 5, 3), (3 * P + 5, 3)):
        cache.commit(table, LONG, computed)
        assert table.shared == cache.pool.cached == shared


def test_reserve_evicts_what_no_table_uses_and_takes_all_or_nothing() -> None:
    cache = make_cache(pages=4)
    kept = compute(cache, LONG[:P])
    cache.release(compute(cache, [99] * (2 * P)))
    assert (cache.pool.free, cache.available) == (1, [3])
    table = BlockTable()
    assert not cache.reserve(table, 4 * P)
    assert not table.pages
    assert cache.pool.free == 1
    assert cache.reserve(table, 3 * P)
    assert cache.stats.evictions == 2
    assert cache.cached_prefix("", LONG) == P
    check_cache(cache, [kept, table])


def test_eviction_takes_the_end_of_a_prefix_first() -> None:
    cache = make_cache(pages=6)
    cache.release(compute(cache, LONG))
    assert cache.reserve(BlockTable(), 3 * P)
    assert cache.cached_prefix("", [*LONG, 0]) == 3 * P


def test_salts_share_nothing() -> None:
    cache = make_cache()
    cache.release(compute(cache, LONG, "mine"))
    assert cache.attach(BlockTable("yours"), LONG) == 0
    assert cache.attach(BlockTable("mine"), LONG) == 4 * P


def test_without_a_prefix_cache_nothing_is_kept() -> None:
    cache = make_cache(prefix_cache=False)
    table = compute(cache, LONG)
    assert cache.pool.cached == 0
    cache.release(table)
    assert cache.pool.free == cache.pool.total
    assert cache.attach(BlockTable(), LONG) == cache.cached_prefix("", LONG) == 0


def test_statistics_count_tokens_and_tell_what_was_evicted() -> None:
    cache = make_cache(pages=5)

    def look(tokens: list[int]) -> tuple[int, int, int]:
        table = BlockTable()
        cache.attach(table, tokens)
        cache.count_lookup(table, tokens)
        cache.release(table)
        return cache.stats.queried, cache.stats.hit, cache.stats.evicted_miss

    prompt = LONG[: 3 * P + 1]
    assert look(prompt) == (49, 0, 0)
    cache.release(compute(cache, prompt))
    assert look(prompt) == (98, 48, 0)
    table = BlockTable()
    assert cache.reserve(table, 3 * P)  # two free, the third from the end of the prefix
    assert cache.stats.evictions == 1
    assert look(prompt) == (147, 80, P)


def test_clear_forgets_all_but_what_is_used() -> None:
    cache = make_cache()
    table = compute(cache, LONG[: 2 * P])
    cache.release(compute(cache, LONG))
    cache.clear()
    assert cache.pool.cached == 2
    check_cache(cache, [table])
    cache.release(table)
    cache.clear()
    assert cache.pool.free == cache.pool.total


@pytest.mark.parametrize("fault", [
    "one own page in two tables", "shared page counted as own", "own page counted as shared", "a lock too many",
    "shared pages swapped", "a page nobody knows", "a node taken out", "evictable drifted"])
def test_check_notices(fault: str) -> None:
    cache = make_cache()
    first, second = compute(cache, LONG[: 2 * P + 1]), compute(cache, [7] * (P + 1))
    check_cache(cache, [first, second])
    assert first.node is not None
    if fault == "one own page in two tables":
        second.pages[1] = first.pages[2]
    elif fault == "shared page counted as own":
        first.shared -= 1
    elif fault == "own page counted as shared":
        first.shared += 1
    elif fault == "a lock too many":
        first.node.locks += 1
    elif fault == "shared pages swapped":
        first.pages[:2] = first.pages[1::-1]
    elif fault == "a page nobody knows":
        cache.pool.allocate()
    elif fault == "a node taken out":
        assert first.node.parent is not None
        del first.node.parent.children[first.node.key]
    elif fault == "evictable drifted":
        cache.tree.evictable += 1
    with pytest.raises(KvCorruptionError):
        check_cache(cache, [first, second])


@pytest.mark.parametrize("seed", range(20))
def test_random_use_keeps_the_books(seed: int) -> None:
    """Tables come, grow and go over a few texts; after each move everything is counted anew."""
    dice = random.Random(seed)
    cache = make_cache(pages=dice.choice([6, 12, 30]), prefix_cache=dice.random() < 0.8)
    texts = [[dice.randrange(3)] * dice.randrange(1, 3 * P) + LONG for _ in range(3)]
    tables: list[tuple[BlockTable, list[int], int]] = []
    for _ in range(150):
        if not tables or dice.random() < 0.3:
            tokens = dice.choice(texts)[: dice.randrange(1, 6 * P)]
            table = BlockTable(dice.choice(["", "salt"]))
            tables.append((table, tokens, cache.attach(table, tokens)))
        elif dice.random() < 0.6:
            i = dice.randrange(len(tables))
            table, tokens, done = tables[i]
            done = min(len(tokens), done + dice.randrange(1, 2 * P))
            if cache.reserve(table, done):
                cache.commit(table, tokens, done)
                tables[i] = table, tokens, done
                assert len(table.pages) >= pages_for(done)
        else:
            cache.release(tables.pop(dice.randrange(len(tables)))[0])
        check_cache(cache, [t for t, _, _ in tables])
        assert cache.pool.free + cache.pool.private + cache.pool.cached == cache.pool.total
    for table, _, _ in tables:
        cache.release(table)
    cache.clear()
    assert cache.pool.free == cache.pool.total


def test_looking_up_with_no_prefix_cache_leaves_no_trace_of_a_salt() -> None:
    cache = make_cache(prefix_cache=False)
    for salt in map(str, range(50)):
        table = BlockTable(salt)
        cache.attach(table, LONG)
        cache.count_lookup(table, LONG)
    assert cache.stats.queried == 50 * len(LONG)
    assert not cache.tree._roots
