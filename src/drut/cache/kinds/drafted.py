"""Pages of a drafter that reads the target's residual streams: a cached prefix is usable only as far as the drafter has
filled its pages, because the streams behind a prefix that is not computed do not exist."""

from __future__ import annotations

from collections.abc import Sequence

from drut.cache.kinds.full import FullGroup, FullKind
from drut.cache.pool import PagePool
from drut.cache.tree import PrefixNode, PrefixTree
from drut.kernels.kv import KvLayout


class DraftedLayout(KvLayout):
    """The layout of such pages."""

    @property
    def kind(self) -> str:
        return "drafted"


class DraftedGroup(FullGroup):
    """Full context, filled by a drafter."""

    def kind_over(self, pool: PagePool, index: int, tree: PrefixTree) -> FullKind:
        return DraftedKind(pool, index, self, tree)


class DraftedKind(FullKind):
    """Resumes behind complete pages only."""

    def resume(self, path: Sequence[PrefixNode], count: int) -> int:
        return next((i for i in range(count) if not self.pool.complete[self.held(path[i]).page]), count)
