"""The KV cache as the scheduler sees it: block tables over the pool, and prefixes shared through the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drut.cache.groups import FullGroup, Group, resume_point
from drut.cache.pool import KvCorruptionError, PagePool
from drut.cache.tree import Node, PrefixTree, page_key
from drut.kernels.kv import PAGE_TOKENS


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE_TOKENS)


@dataclass(eq=False)
class BlockTable:
    """A sequence's pages in order. The first `shared` are the tree's, held by the lock on `node`; the rest its own."""

    salt: str = ""
    pages: list[int] = field(default_factory=list)
    shared: int = 0
    node: Node | None = None


@dataclass
class CacheStats:
    """In tokens, since the start: looked up, found, and found to have been evicted."""

    queried: int = 0
    hit: int = 0
    evicted_miss: int = 0
    evictions: int = 0  # pages


class KvCache:
    """One pool, one tree, one rule: a table is rewritten before a page it mapped is freed."""

    def __init__(self, pool: PagePool, *, prefix_cache: bool = True, groups: Sequence[Group] = (FullGroup(),)) -> None:
        self.pool, self.prefix_cache, self.groups = pool, prefix_cache, groups
        self.tree = PrefixTree(ghosts=4 * pool.total)
        self.stats = CacheStats()

    @property
    def available(self) -> int:
        """Pages that are free or could be made so."""
        return self.pool.free + self.tree.evictable

    def attach(self, table: BlockTable, tokens: Sequence[int]) -> int:
        """Gives an empty table the longest cached prefix of `tokens`; returns its length.

        One token at least stays to be computed, so that there are logits to sample from.
        """
        if not self.prefix_cache:
            return 0
        limit = (len(tokens) - 1) // PAGE_TOKENS
        path = list(self.tree.walk(table.salt, tokens, limit))
        path = path[: resume_point(self.groups, len(path))]
        for node in path:
            self.tree.lock(node)
        table.pages = [node.page for node in path]
        table.shared = len(path)
        table.node = path[-1] if path else None
        return len(path) * PAGE_TOKENS

    def count_lookup(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """Adds what `attach` found for a sequence now admitted to the statistics."""
        hit = table.shared
        self.stats.queried += len(tokens)
        self.stats.hit += hit * PAGE_TOKENS
        if self.prefix_cache and hit < (len(tokens) - 1) // PAGE_TOKENS:
            last = table.node or self.tree.root(table.salt)
            if self.tree.was_evicted(last, page_key(tokens, hit)):
                self.stats.evicted_miss += PAGE_TOKENS

    def cached_prefix(self, salt: str, tokens: Sequence[int]) -> int:
        """How many leading tokens are cached now. Takes nothing."""
        if not self.prefix_cache:
            return 0
        return sum(1 for _ in self.tree.walk(salt, tokens, (len(tokens) - 1) // PAGE_TOKENS)) * PAGE_TOKENS

    def reserve(self, table: BlockTable, tokens: int) -> bool:
        """Pages for `tokens` positions in all, evicting where needed; False and nothing taken if too few."""
        missing = pages_for(tokens) - len(table.pages)
        if missing > self.available:
            return False
        for _ in range(missing):
            if not self.pool.free:
                self.pool.free_cached(self.tree.evict())
                self.stats.evictions += 1
            table.pages.append(self.pool.take())
        return True

    def commit(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Shares the table's full pages: the first `computed` of `tokens` are in them.

        Where the tree holds the same tokens already, the table maps the tree's page and its own copy is freed.
        """
        if not self.prefix_cache:
            return
        for i in range(table.shared, computed // PAGE_TOKENS):
            key = page_key(tokens, i)
            parent = table.node or self.tree.root(table.salt)
            node = parent.children.get(key)
            own = table.pages[i]
            if node is None:
                node = self.tree.insert(parent, key, own)
                self.pool.keep(own)
                own = -1
            self.tree.lock(node)
            table.pages[i] = node.page
            table.node, table.shared = node, i + 1
            if own >= 0:
                self.pool.free_private([own])

    def release(self, table: BlockTable) -> None:
        """Empties the table: its own pages are freed, the shared ones stay cached."""
        own, node = table.pages[table.shared :], table.node
        table.pages, table.shared, table.node = [], 0, None
        self.pool.free_private(own)
        if node is not None:
            self.tree.unlock_path(node)

    def clear(self) -> None:
        """Forgets every prefix no table uses."""
        while self.tree.evictable:
            self.pool.free_cached(self.tree.evict())

    def check(self, tables: Sequence[BlockTable]) -> None:
        """Counts everything anew: pages by state, the tree's pages and locks, that each table maps the path it holds,
        and that no page is mapped twice as own. KvCorruptionError where something is off."""
        self.pool.check()
        nodes = list(self.tree.nodes())
        own = [page for table in tables for page in table.pages[table.shared :]]
        for table in tables:
            self.pool.check_mapped(table.pages, table.shared)
            path = [node.page for node in table.node.path()] if table.node else []
            if table.pages[: table.shared] != path:
                raise KvCorruptionError(f"a block table shares pages {table.pages[: table.shared]}, its path is {path}")
        if len(nodes) != self.pool.cached or len({n.page for n in nodes}) != len(nodes):
            raise KvCorruptionError(f"the tree holds {len(nodes)} pages, the pool counts {self.pool.cached}")
        if len(set(own)) != len(own) or len(own) != self.pool.private:
            raise KvCorruptionError(f"tables own {len(own)} pages, the pool counts {self.pool.private}")
        locks = sum(n.locks for n in nodes)
        if locks != sum(table.shared for table in tables):
            raise KvCorruptionError(f"the tree counts {locks} locks; tables share {sum(t.shared for t in tables)}")
        if self.tree.evictable != sum(1 for n in nodes if not n.locks):
            raise KvCorruptionError(f"{self.tree.evictable} pages counted as evictable, not what the tree holds")
