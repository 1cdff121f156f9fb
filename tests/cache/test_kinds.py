"""Kinds of state that the package does not know: the cache serves whatever implements the interface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from drut.cache.cache import KvCache
from drut.cache.check import check_cache
from drut.cache.groups import pages_for
from drut.cache.kinds import FullGroup, WindowGroup
from drut.cache.pool import KvCorruptionError, PagePool
from drut.kernels.kv import PAGE_TOKENS as P
from drut.kernels.pool import HostPool
from tests.cache.slots import SlotGroup


def make(groups: Sequence[object], units: Sequence[int]) -> KvCache:
    return KvCache(*(PagePool(HostPool(np.zeros((n, 64), np.uint8))) for n in units), groups=groups)  # type: ignore[arg-type]


def test_a_sequence_has_one_slot_however_long_it_gets() -> None:
    cache = make([FullGroup(), SlotGroup()], [20, 2])
    tokens = list(range(5 * P))
    tables = [cache.table() for _ in range(3)]
    for table in tables[:2]:
        assert cache.attach(table, tokens) == 0, "of a prefix there is no state"
        for done in (P, 3 * P, 5 * P):
            assert cache.reserve(table, done)
            cache.commit(table, tokens, done)
        assert [table.held(0), table.held(1)] == [5, 1]
        check_cache(cache, tables)
    assert not cache.reserve(tables[2], 1), "all slots are taken"
    assert cache.room(1000) == 20 * P
    cache.release(tables[0])
    assert cache.reserve(tables[2], 1)
    for table in tables[1:]:
        cache.release(table)
    check_cache(cache, tables)
    assert cache.pools[1].free == 2


def test_a_lost_slot_is_noticed() -> None:
    cache = make([FullGroup(), SlotGroup()], [20, 2])
    table = cache.table()
    assert cache.reserve(table, 1)
    del table.maps[1][:]
    with pytest.raises(KvCorruptionError, match="tables own 0 slots, the pool counts 1"):
        check_cache(cache, [table])


def test_two_groups_may_keep_the_whole_context() -> None:
    """A model with a drafter: a hit has the pages of both, and both are evicted with the node."""
    cache = make([FullGroup(), FullGroup(), WindowGroup(P, 8)], [12, 12, 12])
    tokens = list(range(5 * P + 1))
    table = cache.table()
    assert cache.reserve(table, len(tokens))
    cache.commit(table, tokens, len(tokens))
    cache.release(table)
    assert [pool.cached for pool in cache.pools] == [5, 5, 5]
    again = cache.table()
    assert cache.attach(again, tokens) == 5 * P
    assert [again.held(i) for i in range(3)] == [5, 5, 1]
    check_cache(cache, [again])
    cache.release(again)
    other = cache.table()
    assert cache.reserve(other, 12 * P), "evicting all that is cached"
    assert pages_for(12 * P) == other.held(1) == 12
    check_cache(cache, [other])
    cache.release(other)
    check_cache(cache, [])
    assert [pool.free for pool in cache.pools] == [12, 12, 12]
