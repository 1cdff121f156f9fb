"""Pages are free, private or cached, and each move between these is checked."""

from __future__ import annotations

import numpy as np
import pytest

from drut.cache.pool import POISON, Canary, KvCorruptionError, PagePool
from drut.kernels.pool import HostPool

PAGE_BYTES = 64


def make_pool(pages: int = 4, canary: bool = False) -> PagePool:
    memory = HostPool(np.zeros((pages, PAGE_BYTES), np.uint8))
    return PagePool(memory, Canary(memory) if canary else None)


def counts(pool: PagePool) -> tuple[int, int, int]:
    return pool.free, pool.private, pool.cached


def test_a_page_goes_round() -> None:
    pool = make_pool()
    page = pool.allocate()
    assert counts(pool) == (3, 1, 0)
    pool.mark_cached(page)
    assert counts(pool) == (3, 0, 1)
    pool.free_cached(page)
    assert counts(pool) == (4, 0, 0)
    pool.check()


def test_all_pages_are_handed_out_once() -> None:
    pool = make_pool(9)
    assert sorted(pool.allocate() for _ in range(9)) == list(range(9))
    assert pool.free == 0


@pytest.mark.parametrize("fault", ["free twice", "cached twice", "cached while free", "free a cached page as private",
                                   "evict a private page"])
def test_wrong_moves_are_noticed(fault: str) -> None:
    pool = make_pool()
    page = pool.allocate()
    if fault == "free twice":
        pool.free_private([page])
    if fault in ("cached twice", "free a cached page as private"):
        pool.mark_cached(page)
    move = {
        "free twice": lambda: pool.free_private([page]),
        "cached twice": lambda: pool.mark_cached(page),
        "cached while free": lambda: pool.mark_cached(3),
        "free a cached page as private": lambda: pool.free_private([page]),
        "evict a private page": lambda: pool.free_cached(page),
    }[fault]
    with pytest.raises(KvCorruptionError, match=r"page \d is \w+, expected \w+"):
        move()


def test_counts_that_drifted_are_noticed() -> None:
    pool = make_pool()
    pool.check()
    pool.cached += 1
    with pytest.raises(KvCorruptionError):
        pool.check()


def test_a_table_maps_shared_pages_first_and_then_its_own() -> None:
    pool = make_pool()
    shared, own, freed = pool.allocate(), pool.allocate(), pool.allocate()
    pool.mark_cached(shared)
    pool.free_private([freed])
    pool.check_mapped([shared, own], 1)
    for pages, count in (([own, shared], 1), ([shared, own], 2), ([shared, freed], 1)):
        with pytest.raises(KvCorruptionError, match=r"entry [01] of a block table"):
            pool.check_mapped(pages, count)


def test_freed_pages_are_poisoned_between_steps_not_before() -> None:
    pool = make_pool(canary=True)
    assert pool.canary is not None
    page = pool.allocate()
    pool.free_private([page])
    assert not pool.memory.export([page]).any(), "a step in flight may still read it"
    pool.canary.settle(pool.canary.collect())
    assert (pool.memory.export([page]) == POISON).all()
    assert np.isnan(pool.memory.export([page]).view(np.float32)).all()
