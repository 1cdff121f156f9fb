"""Cache kinds: how the state of one KV group is allocated, shared through the prefix tree, resumed and evicted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drut.cache.groups import KvGroup
from drut.cache.kinds.drafted import DraftedGroup
from drut.cache.kinds.full import FullGroup, FullKind
from drut.cache.kinds.kind import CacheKind
from drut.cache.kinds.paged import PagedKind
from drut.cache.kinds.window import WindowGroup, WindowKind
from drut.kernels.kv import CacheLayout

# `CacheLayout.kind` -> maker of the group, from layout and maximum of rows of a step
Kinds = Mapping[str, Callable[[CacheLayout, int], KvGroup]]
KINDS: Kinds = {
    "drafted": lambda layout, step: DraftedGroup(),
    "full": lambda layout, step: FullGroup(),
    "window": lambda layout, step: WindowGroup(layout.window, step),
}

__all__ = ["KINDS", "CacheKind", "FullGroup", "FullKind", "Kinds", "PagedKind", "WindowGroup", "WindowKind"]
