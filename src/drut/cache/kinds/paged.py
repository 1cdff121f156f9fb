"""State in pages of 16 tokens, a unit per page: the base of full context and windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drut.cache.groups import KvGroup, pages_for
from drut.cache.kinds.kind import CacheKind
from drut.cache.pool import KvCorruptionError, PagePool
from drut.cache.tree import PrefixNode
from drut.kernels.descriptor import HOLE

if TYPE_CHECKING:
    from drut.cache.cache import BlockTable


class PagedKind(CacheKind):
    """A kind whose tables map a page for each 16 positions; entries before `first` are holes."""

    def __init__(self, pool: PagePool, index: int, group: KvGroup) -> None:
        super().__init__(pool, index)
        self._group = group

    def missing(self, table: BlockTable, tokens: int) -> int:
        return pages_for(tokens) - len(table.maps[self.index])

    def resume(self, path: Sequence[PrefixNode], count: int) -> int:
        return self._group.resume([self.held(node).page != HOLE for node in path[:count]], count)

    def share(self, table: BlockTable, page: int, node: PrefixNode) -> None:
        held, own = self.held(node), table.maps[self.index][page]
        if held.page == HOLE:
            held.page = own
            self.lock(node)
            self.pool.mark_cached(own)
        else:  # order: the table maps the tree's page before its own copy is freed
            table.maps[self.index][page] = self.lock(node)
            self.pool.free_private([own])

    def lock(self, node: PrefixNode, *, wanted: bool = False) -> int:
        """Counts one more table that maps the node's page and returns the page; `wanted`: a prefix cache hit."""
        self.held(node).uses += 1
        return self.held(node).page

    def own(self, table: BlockTable) -> Sequence[int]:
        """Returns the table's pages that are not the tree's."""
        return table.maps[self.index][max(table.shared, table.first[self.index]) :]

    def mapped_nodes(self, table: BlockTable) -> list[PrefixNode]:
        """Returns the nodes whose pages the table maps, in order."""
        count = table.shared - table.first[self.index]
        return table.node.last(count)[::-1] if table.node is not None and count > 0 else []

    def check(self, tables: Sequence[BlockTable], nodes: Sequence[PrefixNode]) -> None:
        pool, name = self.pool, f"group {self.index}"
        pool.check()
        for table in tables:
            self._check_table(table)
        cached = [self.held(node).page for node in nodes if self.held(node).page != HOLE]
        if len(cached) != pool.cached or len(set(cached)) != len(cached):
            raise KvCorruptionError(f"the tree has {len(cached)} pages of {name}, but the pool counts {pool.cached}")
        own = [entry for table in tables for entry in self.own(table)]
        if len(set(own)) != len(own) or len(own) != pool.private:
            raise KvCorruptionError(f"tables own {len(own)} pages of {name}, but the pool counts {pool.private}")
        uses = sum(self.held(node).uses for node in nodes)
        if uses != sum(max(0, table.shared - table.first[self.index]) for table in tables):
            raise KvCorruptionError(f"the tree counts {uses} uses of pages of {name}, which differs from the tables")
        idle = sum(1 for node in nodes if self.held(node).page != HOLE and not self.held(node).uses)
        if self.evictable != idle:
            raise KvCorruptionError(f"{self.evictable} pages of {name} are counted as evictable, but there are {idle}")

    def _check_table(self, table: BlockTable) -> None:
        first, mapped = table.first[self.index], table.maps[self.index]
        self.pool.check_mapped(mapped[first:], max(0, table.shared - first))
        if any(entry != HOLE for entry in mapped[:first]):
            raise KvCorruptionError(f"a block table of group {self.index} keeps pages before entry {first}")
        path = [self.held(node).page for node in table.node.path()][first:] if table.node else []
        if (shared := mapped[first : table.shared].tolist()) != path:
            raise KvCorruptionError(f"a block table shares pages {shared}, but its path is {path}")
