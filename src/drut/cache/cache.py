"""The KV cache, as the scheduler uses it: block tables over the page pools, and prefixes shared through the tree."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drut.cache.groups import KvGroup, entries
from drut.cache.kinds.full import FullGroup
from drut.cache.pool import PagePool
from drut.cache.tree import PrefixNode, PrefixTree, page_key
from drut.kernels.kv import PAGE_TOKENS


@dataclass(eq=False)
class BlockTable:
    """A sequence's units in order of position, by KV group.

    The first `shared` pages belong to the tree, and the lock on `node` keeps them; the others are the sequence's own.
    Entries before a group's entry in `first` were freed, and are holes.
    """

    salt: str = ""
    maps: list[array[int]] = field(default_factory=lambda: [entries()])
    first: list[int] = field(default_factory=lambda: [0])
    shared: int = 0
    node: PrefixNode | None = None

    @property
    def pages(self) -> array[int]:
        """The pages of the first group."""
        return self.maps[0]

    def held(self, group: int) -> int:
        """Returns the number of units of one group that the sequence maps."""
        return len(self.maps[group]) - self.first[group]


class Match(NamedTuple):
    """The end of the longest cached prefix of some tokens: its last node, and the tokens of the page behind it."""

    node: PrefixNode | None
    key: bytes | None  # None: the tokens have no further page
    inserts: int  # the tree's count of inserts at that time


@dataclass
class CacheStats:
    """Counts of tokens since the start: looked up, found, and missed because they were evicted."""

    queried: int = 0
    hit: int = 0
    evicted_miss: int = 0
    evictions: int = 0  # evicted units


class KvCache:
    """One prefix tree, and for each KV group a cache kind with its pool.

    Order: a table is rewritten before a unit that it mapped is freed. A prefix cache hit ends where every kind can
    resume. If no kind keeps a page for every node, nodes have only tokens, and their number is bounded.
    """

    def __init__(self, *pools: PagePool, prefix_cache: bool = True, groups: Sequence[KvGroup] = (FullGroup(),)) -> None:
        if len(pools) != len(groups):
            raise ValueError(f"{len(pools)} pools for {len(groups)} KV groups")
        self.pools, self.prefix_cache, self.groups = pools, prefix_cache, groups
        self.tree = PrefixTree(ghosts=4 * pools[0].total, groups=len(groups))
        self.kinds = [group.kind_over(pool, i, self.tree) for i, (group, pool) in enumerate(zip(groups, pools,
                                                                                              strict=True))]
        self._bounded = not any(kind.evicts_nodes for kind in self.kinds)
        self._all_nodes = all(kind.evicts_nodes for kind in self.kinds)
        self._node_room = 8 * pools[0].total
        self.stats = CacheStats()

    @property
    def pool(self) -> PagePool:
        """The pool of the first group."""
        return self.pools[0]

    @property
    def available(self) -> list[int]:
        """The number of units that are free or can be evicted, by group."""
        return [kind.available for kind in self.kinds]

    @property
    def rewinds(self) -> bool:
        """Whether rows that were computed may be computed again with other tokens."""
        return all(kind.rewinds for kind in self.kinds)

    def holds(self, table: BlockTable, tokens: int) -> bool:
        """Whether the table has the units for `tokens` positions."""
        return all(kind.missing(table, tokens) <= 0 for kind in self.kinds)

    def evictable(self, group: int) -> int:
        """Returns the number of cached units of a group that no table maps."""
        return self.kinds[group].evictable

    def room(self, context: int) -> int:
        """Returns the maximum number of tokens of a sequence that runs alone, at most `context`."""
        return int(min(context, *(group.room(p.total) for group, p in zip(self.groups, self.pools, strict=True))))

    def table(self, salt: str = "") -> BlockTable:
        """Returns an empty block table."""
        return BlockTable(salt, [entries() for _ in self.pools], [0] * len(self.pools))

    def attach(self, table: BlockTable, tokens: Sequence[int]) -> int:
        """Prefix cache lookup: maps the longest cached prefix of `tokens` in an empty table and returns its length.

        At least one token remains to be computed, so that there are logits to sample from.
        """
        if not self.prefix_cache:
            return 0
        path = self._resumable(table.salt, tokens)
        for node in path:
            self.tree.lock(node)
        table.shared, table.node = len(path), path[-1] if path else None
        for kind in self.kinds:
            kind.attach(table, path)
        return len(path) * PAGE_TOKENS

    def _resumable(self, salt: str, tokens: Sequence[int]) -> list[PrefixNode]:
        """Returns the longest cached path behind which every kind can resume."""
        path = list(self.tree.walk(salt, tokens, (len(tokens) - 1) // PAGE_TOKENS))
        while path:
            count = min(kind.resume(path, len(path)) for kind in self.kinds)
            if count == len(path):
                break
            del path[count:]
        return path

    def match(self, table: BlockTable, tokens: Sequence[int]) -> Match:
        """Returns the end of the prefix that `attach` mapped in `table`."""
        if not self.prefix_cache or table.shared >= (len(tokens) - 1) // PAGE_TOKENS:
            return Match(None, None, self.tree.inserts)
        return Match(table.node or self.tree.root(table.salt), page_key(tokens, table.shared), self.tree.inserts)

    def grew(self, match: Match) -> bool:
        """Whether the tokens of `match` may have a longer cached prefix now; checked in constant time."""
        if match.node is None or match.key is None:
            return False
        return match.key in match.node.children if self._all_nodes else match.inserts != self.tree.inserts

    def count_lookup(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """Adds the result of `attach` for a sequence that was admitted to the statistics."""
        hit = table.shared
        self.stats.queried += len(tokens)
        self.stats.hit += hit * PAGE_TOKENS
        if self.prefix_cache and hit < (len(tokens) - 1) // PAGE_TOKENS:
            last, key = table.node or self.tree.root(table.salt), page_key(tokens, hit)
            # A node that exists but was not mapped, or one before it, lacks a unit of some kind.
            if key in last.children or self.tree.was_evicted(last, key):
                self.stats.evicted_miss += PAGE_TOKENS

    def cached_prefix(self, salt: str, tokens: Sequence[int]) -> int:
        """Returns the number of leading tokens that are cached now; changes nothing."""
        return len(self._resumable(salt, tokens)) * PAGE_TOKENS if self.prefix_cache else 0

    def reserve(self, table: BlockTable, tokens: int) -> bool:
        """KV block allocation: gives `table` units for `tokens` positions in total, with evictions if necessary.
        Returns False, and allocates nothing, if there are too few."""
        missing = [kind.missing(table, tokens) for kind in self.kinds]
        if max(missing) <= 0:
            return True
        if any(count > 0 and count > kind.available for count, kind in zip(missing, self.kinds, strict=True)):
            return False
        for kind, count in zip(self.kinds, missing, strict=True):
            for _ in range(count):
                if not kind.pool.free:
                    self.evict(kind.index)
                table.maps[kind.index].append(kind.pool.allocate())
        return True

    def evict(self, group: int = 0) -> None:
        """Frees the next cached unit of a group in order of eviction. There must be one. A page of a group with full
        context is evicted with its node, and so are the units of other groups in that node."""
        kind = self.kinds[group]
        if kind.evicts_nodes:
            return self._evict_leaf()
        kind.evict()
        self.stats.evictions += 1

    def _evict_leaf(self) -> None:
        node = self.tree.evict()
        self.stats.evictions += sum(kind.drop(node) for kind in self.kinds)

    def commit(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Shares the table's full pages, which hold the first `computed` of `tokens`. Then frees units that neither a
        later row nor a prompt that continues behind the last full page would read.

        If the tree has the same tokens already, the table maps the tree's units, and its own copies are freed.
        """
        if self.prefix_cache:
            for i in range(table.shared, computed // PAGE_TOKENS):
                self._share(table, i, page_key(tokens, i))
        if not self._all_nodes:
            self.slide(table, computed - computed % PAGE_TOKENS if self.prefix_cache else computed)
            while self._bounded and self.tree.size > self._node_room and self.tree.evictable:
                self._evict_leaf()

    def _share(self, table: BlockTable, page: int, key: bytes) -> None:
        parent = table.node or self.tree.root(table.salt)
        node = parent.children.get(key) or self.tree.insert(parent, key)
        self.tree.lock(node)
        table.node, table.shared = node, page + 1
        for kind in self.kinds:
            kind.share(table, page, node)

    def slide(self, table: BlockTable, computed: int) -> None:
        """Frees units that rows from position `computed` on do not read; shared units stay cached."""
        for kind in self.kinds:
            kind.slide(table, computed)

    def release(self, table: BlockTable) -> None:
        """Empties the table: its own units are freed, shared units stay cached."""
        held = [kind.holdings(table) for kind in self.kinds]
        node = table.node
        table.maps, table.first = [entries() for _ in self.pools], [0] * len(self.pools)
        table.shared, table.node = 0, None
        for kind, holdings in zip(self.kinds, held, strict=True):
            kind.free(holdings)
        if node is not None:
            self.tree.unlock_path(node)

    def clear(self) -> None:
        """Evicts every prefix that no table uses."""
        while self.tree.evictable:
            self._evict_leaf()
        for kind in self.kinds:
            while not kind.evicts_nodes and kind.evictable:
                self.evict(kind.index)
