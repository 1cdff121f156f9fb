"""How much of the KV cache's memory each group of layers gets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut import LLM
from drut.cache.groups import pages_for
from drut.cache.kinds import FullGroup, WindowGroup
from drut.config import EngineConfig
from drut.engine import memory
from drut.engine.memory import make_groups, split
from drut.engine.memory_plan import MemoryPlan
from drut.errors import RequestError
from drut.kernels.kv import KvLayout
from drut.model.model import open_model
from tests.golden.weights import write_checkpoint

STEP = 512
FULL = KvLayout("bf16", 4, 1, 256)
WINDOW = KvLayout(dtype="bf16", layers=22, kv_heads=1, head_dim=256, group=1, window=512, members=tuple(range(22)))


def pool_pages(layouts: list[KvLayout], step: int, context: int, config: EngineConfig) -> list[int]:
    return memory.pool_pages(layouts, make_groups(layouts, step), context, config)


def config(pages: float, layouts: list[KvLayout], seqs: int = 8) -> EngineConfig:
    return EngineConfig(kv_cache_gb=pages * sum(kv.page_bytes for kv in layouts) / 1e9, max_seqs=seqs)


def test_one_group_takes_it_all() -> None:
    for kv in (FULL, WINDOW):
        assert pool_pages([kv], STEP, 1 << 20, config(1000.5, [kv])) == [1000]


def test_a_small_cache_has_a_page_of_each_group_for_every_token() -> None:
    layouts = [FULL, WINDOW]
    assert pool_pages(layouts, STEP, 1 << 20, config(100.1, layouts)) == [100, 100]


def test_windows_take_no_more_than_their_sequences_can_use() -> None:
    layouts = [FULL, WINDOW]
    full, window = pool_pages(layouts, STEP, 1 << 20, config(5000.5, layouts))
    assert window == (8 + 16) * (32 + 4) + 64
    room = int(5000.5 * (FULL.page_bytes + WINDOW.page_bytes))
    assert full == (room - window * WINDOW.page_bytes) // FULL.page_bytes


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(1, 2000), st.integers(1, 500))
def test_all_of_the_memory_and_no_more_is_given(sizes: list[int], pages: int, enough: int) -> None:
    layouts = [KvLayout("bf16", n, 1, 16) for n in sizes]
    each = sum(kv.page_bytes for kv in layouts)
    got = split(layouts, pages * each, [1 << 62, *[enough] * (len(sizes) - 1)])
    used = sum(n * kv.page_bytes for n, kv in zip(got, layouts, strict=True))
    assert pages * each - layouts[0].page_bytes < used <= pages * each
    assert got[0] >= pages
    assert all(n == min(pages, enough) or n > pages for n in got[1:])


def test_the_default_is_what_four_full_sequences_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 40)
    full, window = pool_pages([FULL, WINDOW], STEP, 1 << 17, EngineConfig(max_seqs=8))
    assert full == 4 * (1 << 13)
    assert window == (8 + 16) * 36 + 64
    assert pool_pages([FULL], STEP, 1000, EngineConfig()) == [4 * 63]
    monkeypatch.setattr(memory, "free_memory", lambda: 200 * FULL.page_bytes)
    assert pool_pages([FULL], STEP, 1000, EngineConfig()) == [100]
    monkeypatch.setattr(memory, "free_memory", lambda: 0)
    assert pool_pages([FULL, WINDOW], STEP, 1000, EngineConfig()) == [1, 1]


def test_a_cache_that_holds_no_page_of_each_is_refused() -> None:
    with pytest.raises(RequestError, match=f"does not hold one page of {FULL.page_bytes + WINDOW.page_bytes} bytes"):
        pool_pages([FULL, WINDOW], STEP, 1000, config(0.9, [FULL, WINDOW]))


def test_enough_is_enough_for_the_longest_sequence() -> None:
    """The split never makes a window the reason that a text is too long."""
    for seqs in (1, 8, 128):
        full, window = pool_pages([FULL, WINDOW], STEP, 1 << 20, config(1e5, [FULL, WINDOW], seqs))
        narrow = make_groups([FULL, WINDOW], STEP)[1]
        assert narrow.room(window) > full * 16


def test_groups_know_their_windows() -> None:
    full, window = make_groups([FULL, WINDOW], 64)
    assert isinstance(full, FullGroup)
    assert window == WindowGroup(512, 64)
    assert window.max_pages(100) == pages_for(100)
    assert window.max_pages(1 << 20) == pages_for(512 + 128) + 2


def test_a_plan_is_what_the_engine_then_takes(tmp_path: Path) -> None:
    path = write_checkpoint("gemma2", tmp_path / "gemma2")
    settings = EngineConfig(kv_cache_gb=1e-3, max_seqs=3, threads=1, max_model_len=100)
    needs = MemoryPlan.of(open_model(path).spec, settings)
    with LLM(path, config=settings) as llm:
        pools = llm.engine.cache.pools
        assert [pool.total for pool in pools] == list(needs.pages)
        assert sum(pool.memory.pages * pool.memory.page_bytes for pool in pools) == needs.kv_bytes
        assert llm.room == needs.room == 100
        assert needs.logits_bytes == 3 * llm.files.spec.vocab * 4
