"""Full context: every node of the prefix tree has a page, and a page is evicted with its node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drut.cache.groups import UNBOUNDED, KvGroup, entries, pages_for
from drut.cache.kinds.kind import CacheKind, Holdings
from drut.cache.kinds.paged import PagedKind
from drut.cache.pool import PagePool
from drut.cache.tree import PrefixNode, PrefixTree
from drut.kernels.descriptor import HOLE
from drut.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from drut.cache.cache import BlockTable


class FullGroup:
    """A group that keeps the full context: it can resume after any page if no page before is missing."""

    def kind_over(self, pool: PagePool, index: int, tree: PrefixTree) -> CacheKind:
        return FullKind(pool, index, self, tree)

    def first(self, position: int) -> int:
        return 0

    def enough(self, seqs: int) -> int:
        return UNBOUNDED

    def max_pages(self, tokens: int) -> int:
        return pages_for(tokens)

    def room(self, pages: int) -> float:
        return pages * PAGE_TOKENS

    def resume(self, kept: Sequence[bool], pages: int) -> int:
        return next((i for i in range(pages) if not kept[i]), pages)


class FullKind(PagedKind):
    """Pages of the full context. A table maps all pages of its path, so a page is unused exactly if its node is
    unlocked."""

    evicts_nodes = True

    def __init__(self, pool: PagePool, index: int, group: KvGroup, tree: PrefixTree) -> None:
        super().__init__(pool, index, group)
        self._tree = tree

    @property
    def evictable(self) -> int:
        return self._tree.evictable

    def attach(self, table: BlockTable, path: Sequence[PrefixNode]) -> None:
        table.maps[self.index] = entries(self.lock(node) for node in path)

    def slide(self, table: BlockTable, computed: int) -> None:
        pass

    def holdings(self, table: BlockTable) -> Holdings:
        return Holdings(self.own(table), self.mapped_nodes(table))

    def free(self, holdings: Holdings) -> None:
        self.pool.free_private(holdings.own)
        for node in holdings.nodes:
            self.held(node).uses -= 1

    def evict(self) -> None:
        raise AssertionError("a page of the full context is evicted with its node")

    def drop(self, node: PrefixNode) -> bool:
        held = self.held(node)
        page, held.page = held.page, HOLE
        if page == HOLE:
            return False
        self.pool.free_cached(page)
        return True
