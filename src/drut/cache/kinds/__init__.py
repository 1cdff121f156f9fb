"""Cache kinds: how the state of one KV group is allocated, shared through the prefix tree, resumed and evicted."""

from drut.cache.kinds.full import FullGroup, FullKind
from drut.cache.kinds.kind import CacheKind
from drut.cache.kinds.paged import PagedKind
from drut.cache.kinds.window import WindowGroup, WindowKind

__all__ = ["CacheKind", "FullGroup", "FullKind", "PagedKind", "WindowGroup", "WindowKind"]
