"""The cache's books, counted anew."""

from __future__ import annotations

from collections.abc import Sequence

from drut.cache.cache import BlockTable, KvCache
from drut.cache.pool import KvCorruptionError


def check_cache(cache: KvCache, tables: Sequence[BlockTable]) -> None:
    """Counts everything: locks and nodes of the tree here, and by each kind its units by state, what tables map, and
    that nothing is owned twice. KvCorruptionError where something is off."""
    nodes = list(cache.tree.nodes())
    locks = sum(n.locks for n in nodes)
    if locks != sum(table.shared for table in tables):
        raise KvCorruptionError(f"the tree counts {locks} locks; tables share {sum(t.shared for t in tables)}")
    unlocked = sum(1 for n in nodes if not n.locks)
    if cache.tree.evictable != unlocked or cache.tree.size != len(nodes):
        raise KvCorruptionError(f"{cache.tree.evictable} of {cache.tree.size} nodes counted as evictable, "
                                f"there are {unlocked} of {len(nodes)}")
    for kind in cache.kinds:
        kind.check(tables, nodes)
