"""KV groups: layers that keep the same of each token. A cached prefix is usable only as far as every group can
resume."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from drut.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from drut.cache.kinds import CacheKind
    from drut.cache.pool import PagePool
    from drut.cache.tree import PrefixTree


UNBOUNDED = 1 << 62


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE_TOKENS)


def entries(units: Iterable[int] = ()) -> array[int]:
    """Returns a block table's entries as int32, which a step descriptor copies unchanged. Hazard: an array that NumPy
    has a view of cannot grow."""
    return array("i", units)


class KvGroup(Protocol):
    """The arithmetic of one kind of state, which needs no pool; `kind_over` makes the cache kind."""

    def kind_over(self, pool: PagePool, index: int, tree: PrefixTree) -> CacheKind:
        """Returns the cache kind of group number `index` over its pool."""
        ...

    def first(self, position: int) -> int:
        """Returns the first page that rows from `position` on read; pages before it may be freed."""
        ...

    def enough(self, seqs: int) -> int:
        """Returns the number of units that suffices for `seqs` sequences; `UNBOUNDED` if there is no such number."""
        ...

    def max_pages(self, tokens: int) -> int:
        """Returns the maximum of pages that a sequence of `tokens` tokens holds at any time."""
        ...

    def room(self, pages: int) -> float:
        """Returns the maximum number of tokens of a sequence that `pages` pages are enough for."""
        ...

    def resume(self, kept: Sequence[bool], pages: int) -> int:
        """Returns the maximum of leading pages, at most `pages`, behind which this group can resume; `kept`: the pages
        that it has."""
        ...
