"""Recounts the cache's state, to check its invariants."""

from __future__ import annotations

from collections.abc import Sequence

from drut.cache.cache import BlockTable, KvCache
from drut.cache.pool import KvCorruptionError


def check_cache(cache: KvCache, tables: Sequence[BlockTable]) -> None:
    """Recounts locks and nodes of the tree, and for each kind its units by state and the mappings of tables, and checks
    that no unit has two owners. Raises KvCorruptionError if a count is wrong."""
    nodes = list(cache.tree.nodes())
    locks = sum(n.locks for n in nodes)
    if locks != sum(table.shared for table in tables):
        raise KvCorruptionError(f"the tree counts {locks} locks; tables share {sum(t.shared for t in tables)}")
    unlocked = sum(1 for n in nodes if not n.locks)
    if cache.tree.evictable != unlocked or cache.tree.size != len(nodes):
        raise KvCorruptionError(f"the tree counts {cache.tree.evictable} of {cache.tree.size} nodes as evictable, but "
                                f"there are {unlocked} of {len(nodes)}")
    for kind in cache.kinds:
        kind.check(tables, nodes)
