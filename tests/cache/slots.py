"""A cache kind that the package does not know: a slot for each sequence, as a recurrent state has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drut.cache.cache import BlockTable
from drut.cache.kinds import CacheKind
from drut.cache.kinds.kind import Holdings
from drut.cache.pool import KvCorruptionError, PagePool
from drut.cache.tree import PrefixNode, PrefixTree


class SlotGroup:
    """One slot a sequence, however long it gets."""

    def first(self, position: int) -> int:
        return 0

    def enough(self, seqs: int) -> int:
        return seqs

    def max_pages(self, tokens: int) -> int:
        return 1

    def room(self, pages: int) -> float:
        return math.inf if pages else 0

    def resume(self, kept: Sequence[bool], pages: int) -> int:
        return 0

    def kind_over(self, pool: PagePool, index: int, tree: PrefixTree) -> CacheKind:
        return SlotKind(pool, index)


class SlotKind(CacheKind):
    """Nothing of a slot is shared, so no prefix can be gone on with; and a state that took a token in keeps it."""

    evictable = 0
    rewinds = False

    def missing(self, table: BlockTable, tokens: int) -> int:
        return 1 - len(table.maps[self.index])

    def resume(self, path: Sequence[PrefixNode], count: int) -> int:
        return 0

    def attach(self, table: BlockTable, path: Sequence[PrefixNode]) -> None:
        assert not path

    def share(self, table: BlockTable, page: int, node: PrefixNode) -> None:
        pass

    def slide(self, table: BlockTable, computed: int) -> None:
        pass

    def holdings(self, table: BlockTable) -> Holdings:
        return Holdings(table.maps[self.index], [])

    def free(self, holdings: Holdings) -> None:
        self.pool.free_private(holdings.own)

    def evict(self) -> None:
        raise AssertionError("no slot is cached")

    def drop(self, node: PrefixNode) -> bool:
        return False

    def check(self, tables: Sequence[BlockTable], nodes: Sequence[PrefixNode]) -> None:
        own = [slot for table in tables for slot in table.maps[self.index]]
        if len(set(own)) != len(own) or len(own) != self.pool.private:
            raise KvCorruptionError(f"tables own {len(own)} slots, the pool counts {self.pool.private}")
