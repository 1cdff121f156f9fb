"""The KV cache as the scheduler sees it: block tables over the pools, and prefixes shared through the tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drut.cache.groups import FullGroup, Group, pages_for, resume_point
from drut.cache.pool import PagePool
from drut.cache.tree import Node, PrefixTree, page_key
from drut.cache.windows import WindowPages
from drut.kernels.descriptor import HOLE
from drut.kernels.kv import PAGE_TOKENS


@dataclass(eq=False)
class BlockTable:
    """A sequence's pages in order, by KV group. The first `shared` are the tree's, held by the lock on `node`; the rest
    its own. Those before a group's entry in `first` were let go, and are holes."""

    salt: str = ""
    maps: list[list[int]] = field(default_factory=lambda: [[]])
    first: list[int] = field(default_factory=lambda: [0])
    shared: int = 0
    node: Node | None = None

    @property
    def pages(self) -> list[int]:
        """Of the first group."""
        return self.maps[0]

    def held(self, group: int) -> int:
        """Pages of one group that the sequence keeps."""
        return len(self.maps[group]) - self.first[group]

    def own(self, group: int) -> list[int]:
        return self.maps[group][max(self.shared, self.first[group]) :]


class Match(NamedTuple):
    """Where the longest cached prefix of some tokens ended: its last node, and the tokens of the page behind it."""

    node: Node | None
    key: bytes | None  # None: no page of the tokens follows
    inserts: int  # into the tree, so far


@dataclass
class CacheStats:
    """In tokens, since the start: looked up, found, and found to have been evicted."""

    queried: int = 0
    hit: int = 0
    evicted_miss: int = 0
    evictions: int = 0  # pages


class KvCache:
    """A pool a group, one tree, one rule: a table is rewritten before a page it mapped is freed.

    The first group keeps at least what any other keeps. Where it has no window, the tree's nodes are its pages, and a
    node may lack the pages of the others. Where all have one, nodes are tokens alone, and bounded in number.
    """

    def __init__(self, *pools: PagePool, prefix_cache: bool = True, groups: Sequence[Group] = (FullGroup(),)) -> None:
        self.pools, self.prefix_cache, self.groups = pools, prefix_cache, groups
        if len(pools) != len(groups) or any(g.kind == "full" for g in groups[1:]):
            raise ValueError("every group has a pool, and none but the first keeps the whole context")
        self.full = groups[0].kind == "full"
        named = [i for i, group in enumerate(groups) if group.kind == "window"]
        self.windows = [WindowPages(index, place) for place, index in enumerate(named)]
        self.tree = PrefixTree(ghosts=4 * pools[0].total, windows=len(named))
        self._node_room = 8 * pools[0].total
        self.stats = CacheStats()

    @property
    def pool(self) -> PagePool:
        """Of the first group."""
        return self.pools[0]

    @property
    def available(self) -> list[int]:
        """Pages that are free or could be made so, by group."""
        return [pool.free + self.evictable(i) for i, pool in enumerate(self.pools)]

    def evictable(self, group: int) -> int:
        """Cached pages of a group that no table maps."""
        return self.tree.evictable if self.full and group == 0 else self.windows[group - self.full].evictable

    def room(self, context: int) -> int:
        """Tokens of the longest sequence that can be computed alone, at most `context`."""
        return int(min(context, *(group.room(p.total) for group, p in zip(self.groups, self.pools, strict=True))))

    def table(self, salt: str = "") -> BlockTable:
        """An empty one."""
        return BlockTable(salt, [[] for _ in self.pools], [0] * len(self.pools))

    def attach(self, table: BlockTable, tokens: Sequence[int]) -> int:
        """Gives an empty table the longest cached prefix of `tokens`; returns its length.

        One token at least stays to be computed, so that there are logits to sample from.
        """
        if not self.prefix_cache:
            return 0
        path = self._resumable(table.salt, tokens)
        for node in path:
            self.tree.lock(node)
        if self.full:
            table.maps[0] = [node.page for node in path]
        for w in self.windows:
            first = self.groups[w.index].first(len(path) * PAGE_TOKENS)
            table.maps[w.index] = [HOLE] * first + [w.lock(node, wanted=True) for node in path[first:]]
            table.first[w.index] = first
        table.shared = len(path)
        table.node = path[-1] if path else None
        return len(path) * PAGE_TOKENS

    def _resumable(self, salt: str, tokens: Sequence[int]) -> list[Node]:
        path = list(self.tree.walk(salt, tokens, (len(tokens) - 1) // PAGE_TOKENS))
        if not self.windows:
            return path
        kept = [[w.page(node) != HOLE for node in path] for w in self.windows]
        return path[: resume_point([self.groups[w.index] for w in self.windows], kept, len(path))]

    def match(self, table: BlockTable, tokens: Sequence[int]) -> Match:
        """Where the prefix that `table` was given ends."""
        if not self.prefix_cache or table.shared >= (len(tokens) - 1) // PAGE_TOKENS:
            return Match(None, None, self.tree.inserts)
        return Match(table.node or self.tree.root(table.salt), page_key(tokens, table.shared), self.tree.inserts)

    def grew(self, match: Match) -> bool:
        """Whether the tokens of `match` may have a longer cached prefix by now, at a constant cost."""
        if match.node is None or match.key is None:
            return False
        return match.key in match.node.children if not self.windows else match.inserts != self.tree.inserts

    def count_lookup(self, table: BlockTable, tokens: Sequence[int]) -> None:
        """Adds what `attach` found for a sequence now admitted to the statistics."""
        hit = table.shared
        self.stats.queried += len(tokens)
        self.stats.hit += hit * PAGE_TOKENS
        if self.prefix_cache and hit < (len(tokens) - 1) // PAGE_TOKENS:
            last, key = table.node or self.tree.root(table.salt), page_key(tokens, hit)
            # A node that is there but was not given lacks a page of a window, or one before it does.
            if key in last.children or self.tree.was_evicted(last, key):
                self.stats.evicted_miss += PAGE_TOKENS

    def cached_prefix(self, salt: str, tokens: Sequence[int]) -> int:
        """How many leading tokens are cached now. Takes nothing."""
        return len(self._resumable(salt, tokens)) * PAGE_TOKENS if self.prefix_cache else 0

    def reserve(self, table: BlockTable, tokens: int) -> bool:
        """Pages for `tokens` positions in all, evicting where needed; False and nothing taken if too few."""
        missing = pages_for(tokens) - len(table.pages)
        if missing > 0 and missing > min(self.available):
            return False
        for group, pool in enumerate(self.pools):
            for _ in range(missing):
                if not pool.free:
                    self.evict(group)
                table.maps[group].append(pool.take())
        return True

    def evict(self, group: int = 0) -> None:
        """Frees the cached page of a group that goes first. There must be one. A page of the whole context takes those
        of its tokens in other groups with it."""
        if self.full and group == 0:
            self._evict_leaf()
        else:
            self.pools[group].free_cached(self.windows[group - self.full].evict())
            self.stats.evictions += 1

    def _evict_leaf(self) -> None:
        node = self.tree.evict()
        pages = [(0, node.page)] if self.full else []
        pages += [(w.index, w.drop(node)) for w in self.windows]
        for group, page in pages:
            if page != HOLE:
                self.pools[group].free_cached(page)
                self.stats.evictions += 1

    def commit(self, table: BlockTable, tokens: Sequence[int], computed: int) -> None:
        """Shares the table's full pages: the first `computed` of `tokens` are in them. Then lets go of the pages that
        no row to come sees, and that a prompt which goes on from the last full page would not see either.

        Where the tree holds the same tokens already, the table maps the tree's page and its own copy is freed.
        """
        if self.prefix_cache:
            for i in range(table.shared, computed // PAGE_TOKENS):
                self._share(table, i, page_key(tokens, i))
        if self.windows:
            self.slide(table, computed - computed % PAGE_TOKENS if self.prefix_cache else computed)
            while not self.full and self.tree.size > self._node_room and self.tree.evictable:
                self._evict_leaf()

    def _share(self, table: BlockTable, i: int, key: bytes) -> None:
        parent = table.node or self.tree.root(table.salt)
        node = parent.children.get(key) or self.tree.insert(parent, key, HOLE)
        self.tree.lock(node)
        table.node, table.shared = node, i + 1
        if self.full:
            kept = node.page
            if kept == HOLE:
                node.page = table.pages[i]
            self._settle(table, 0, i, kept)
        for w in self.windows:
            kept = w.page(node)
            if kept == HOLE:
                w.put(node, table.maps[w.index][i])
            w.lock(node)
            self._settle(table, w.index, i, kept)

    def _settle(self, table: BlockTable, group: int, i: int, kept: int) -> None:
        """The table's own page `i` becomes the tree's, or gives way to the one that the tree has `kept`."""
        own = table.maps[group][i]
        if kept == HOLE:
            self.pools[group].keep(own)
        else:
            table.maps[group][i] = kept
            self.pools[group].free_private([own])

    def slide(self, table: BlockTable, computed: int) -> None:
        """Lets go of the pages that rows from position `computed` on do not see; shared ones stay cached."""
        for w in self.windows:
            first, before = self.groups[w.index].first(computed), table.first[w.index]
            if first <= before:
                continue
            own = table.maps[w.index][max(table.shared, before) : first]
            nodes = self._window_nodes(table, w)[: max(min(first, table.shared) - before, 0)]
            table.maps[w.index][before:first] = [HOLE] * (first - before)
            table.first[w.index] = first
            for node in nodes:
                w.unlock(node)
            self.pools[w.index].free_private(own)

    def _window_nodes(self, table: BlockTable, w: WindowPages) -> list[Node]:
        """The nodes whose pages of the group the table maps, in order."""
        return table.node.last(table.shared - table.first[w.index])[::-1] if table.node is not None else []

    def release(self, table: BlockTable) -> None:
        """Empties the table: its own pages are freed, the shared ones stay cached."""
        own = [table.own(group) for group in range(len(self.pools))]
        nodes = [self._window_nodes(table, w) for w in self.windows]
        node = table.node
        table.maps, table.first = [[] for _ in self.pools], [0] * len(self.pools)
        table.shared, table.node = 0, None
        for pool, pages in zip(self.pools, own, strict=True):
            pool.free_private(pages)
        for w, used in zip(self.windows, nodes, strict=True):
            for one in reversed(used):  # what lies deeper goes first
                w.unlock(one, wanted=True)
        if node is not None:
            self.tree.unlock_path(node)

    def clear(self) -> None:
        """Forgets every prefix no table uses."""
        while self.tree.evictable:
            self._evict_leaf()
        for w in self.windows:
            while w.evictable:
                self.evict(w.index)
