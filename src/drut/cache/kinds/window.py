"""Sliding windows: a table keeps the pages that its next row reads; a cached page may be evicted while its node stays.

Pages that a window has passed are useful only for a prompt that diverges there. They are evicted before pages that were
in a sequence's window when it ended, or that had a prefix cache hit. In each class the least recently used are evicted
first.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drut.cache.groups import KvGroup, entries, pages_for
from drut.cache.kinds.kind import CacheKind, Holdings
from drut.cache.kinds.paged import PagedKind
from drut.cache.pool import PagePool
from drut.cache.tree import PrefixNode, PrefixTree
from drut.kernels.descriptor import HOLE
from drut.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from drut.cache.cache import BlockTable


PREFIXES = 16  # ended sequences whose windows stay cached while the maximum of sequences runs


@dataclass(frozen=True)
class WindowGroup:
    """A group that keeps what a row sees: the latest `window` positions, its own included. `step`: maximum of rows of a
    step."""

    window: int
    step: int

    def kind_over(self, pool: PagePool, index: int, tree: PrefixTree) -> CacheKind:
        return WindowKind(pool, index, self)

    def first(self, position: int) -> int:
        return max(0, position + 1 - self.window) // PAGE_TOKENS

    @property
    def bound(self) -> int:
        """The number of pages that suffices for any sequence: the window before the in-flight step, that step's rows,
        and the next step's rows."""
        return pages_for(self.window + 2 * self.step) + 2

    def enough(self, seqs: int) -> int:
        return (seqs + PREFIXES) * (pages_for(self.window) + 4) + pages_for(2 * self.step)

    def max_pages(self, tokens: int) -> int:
        return min(pages_for(tokens), self.bound)

    def room(self, pages: int) -> float:
        return math.inf if pages >= self.bound else pages * PAGE_TOKENS

    def resume(self, kept: Sequence[bool], pages: int) -> int:
        at = pages  # pages at..pages are present
        while at > self.first(pages * PAGE_TOKENS):
            at -= 1
            if not kept[at]:
                pages = at
        return pages


class WindowKind(PagedKind):
    """Pages of a group whose rows see `group.window` positions."""

    def __init__(self, pool: PagePool, index: int, group: KvGroup) -> None:
        super().__init__(pool, index, group)
        self._passed: OrderedDict[PrefixNode, None] = OrderedDict()  # unused, by last use
        self._wanted: OrderedDict[PrefixNode, None] = OrderedDict()

    @property
    def evictable(self) -> int:
        return len(self._passed) + len(self._wanted)

    def attach(self, table: BlockTable, path: Sequence[PrefixNode]) -> None:
        first = self._group.first(len(path) * PAGE_TOKENS)
        table.maps[self.index] = entries([HOLE] * first + [self.lock(node, wanted=True) for node in path[first:]])
        table.first[self.index] = first

    def lock(self, node: PrefixNode, *, wanted: bool = False) -> int:
        held = self.held(node)
        if held.uses == 0:
            self._passed.pop(node, None)
            self._wanted.pop(node, None)
        held.wanted |= wanted
        return super().lock(node)

    def unlock(self, node: PrefixNode, *, wanted: bool = False) -> None:
        """Counts one table less that maps the node's page; `wanted`: its sequence ended with the page in its window."""
        held = self.held(node)
        held.uses -= 1
        held.wanted |= wanted
        if held.uses == 0:
            (self._wanted if held.wanted else self._passed)[node] = None

    def slide(self, table: BlockTable, computed: int) -> None:
        first, before = self._group.first(computed), table.first[self.index]
        if first <= before:
            return
        own = table.maps[self.index][max(table.shared, before) : first]
        nodes = self.mapped_nodes(table)[: max(min(first, table.shared) - before, 0)]
        table.maps[self.index][before:first] = entries([HOLE]) * (first - before)
        table.first[self.index] = first
        for node in nodes:
            self.unlock(node)
        self.pool.free_private(own)

    def holdings(self, table: BlockTable) -> Holdings:
        return Holdings(self.own(table), self.mapped_nodes(table))

    def free(self, holdings: Holdings) -> None:
        self.pool.free_private(holdings.own)
        for node in reversed(holdings.nodes):  # order: deeper nodes are evicted first
            self.unlock(node, wanted=True)

    def evict(self) -> None:
        node, _ = (self._passed or self._wanted).popitem(last=False)
        self._free(node)

    def drop(self, node: PrefixNode) -> bool:
        self._passed.pop(node, None)
        self._wanted.pop(node, None)
        return self._free(node)

    def _free(self, node: PrefixNode) -> bool:
        held = self.held(node)
        page, held.page, held.wanted = held.page, HOLE, False
        if page == HOLE:
            return False
        self.pool.free_cached(page)
        return True
