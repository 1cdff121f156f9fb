"""The cache's books, counted anew."""

from __future__ import annotations

from collections.abc import Sequence

from drut.cache.cache import BlockTable, KvCache
from drut.cache.pool import KvCorruptionError
from drut.cache.tree import Node
from drut.kernels.descriptor import HOLE


def check_cache(cache: KvCache, tables: Sequence[BlockTable]) -> None:
    """Counts everything: pages by state, the tree's pages and locks, that each table maps the path it holds, with holes
    where its windows have passed, and that no page is mapped twice as own. KvCorruptionError where something is off."""
    nodes = list(cache.tree.nodes())
    locks = sum(n.locks for n in nodes)
    if locks != sum(table.shared for table in tables):
        raise KvCorruptionError(f"the tree counts {locks} locks; tables share {sum(t.shared for t in tables)}")
    unlocked = sum(1 for n in nodes if not n.locks)
    if cache.tree.evictable != unlocked or cache.tree.size != len(nodes):
        raise KvCorruptionError(f"{cache.tree.evictable} of {cache.tree.size} nodes counted as evictable, "
                                f"there are {unlocked} of {len(nodes)}")
    for group in range(len(cache.pools)):
        _check_group(cache, group, tables, nodes)


def _check_group(cache: KvCache, group: int, tables: Sequence[BlockTable], nodes: Sequence[Node]) -> None:
    pool = cache.pools[group]
    pool.check()
    window = None if cache.full and group == 0 else cache.windows[group - cache.full]

    def page(node: Node) -> int:
        return node.page if window is None else window.page(node)

    for table in tables:
        first, mapped = table.first[group], table.maps[group]
        pool.check_mapped(mapped[first:], max(0, table.shared - first))
        if any(entry != HOLE for entry in mapped[:first]) or len(mapped) != len(table.pages):
            raise KvCorruptionError(f"a block table of group {group} keeps pages before entry {first}, or has "
                                    f"{len(mapped)} entries and the first group's {len(table.pages)}")
        path = [page(node) for node in table.node.path()][first:] if table.node else []
        if mapped[first : table.shared] != path:
            raise KvCorruptionError(f"a block table shares pages {mapped[first : table.shared]}, its path is {path}")
    cached = [page(node) for node in nodes if page(node) != HOLE]
    if len(cached) != pool.cached or len(set(cached)) != len(cached):
        raise KvCorruptionError(f"the tree holds {len(cached)} pages of group {group}, the pool counts {pool.cached}")
    own = [entry for table in tables for entry in table.own(group)]
    if len(set(own)) != len(own) or len(own) != pool.private:
        raise KvCorruptionError(f"tables own {len(own)} pages of group {group}, the pool counts {pool.private}")
    if window is None:
        return
    uses = sum(window.uses(node) for node in nodes)
    if uses != sum(max(0, table.shared - table.first[group]) for table in tables):
        raise KvCorruptionError(f"the tree counts {uses} uses of pages of group {group}, not what tables map")
    idle = sum(1 for node in nodes if page(node) != HOLE and not window.uses(node))
    if window.evictable != idle:
        raise KvCorruptionError(f"{window.evictable} pages of group {group} counted as evictable, there are {idle}")
