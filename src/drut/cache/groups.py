"""KV groups: layers whose keys and values live together. A prefix counts only as far as every group can resume."""

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
    """A block table's entries as int32, which a step descriptor copies as they lie. An array that NumPy has a view of
    cannot grow."""
    return array("i", units)


class Group(Protocol):
    """The arithmetic of one kind of state, which is known before there is a pool; `kind_over` makes the kind itself."""

    def kind_over(self, pool: PagePool, index: int, tree: PrefixTree) -> CacheKind:
        """The cache kind of group number `index` over its pool."""
        ...

    def first(self, position: int) -> int:
        """The first page that rows from `position` on read; those before it may be gone."""
        ...

    def enough(self, seqs: int) -> int:
        """Units beyond which `seqs` sequences have no use for more; `UNBOUNDED` if there is no such number."""
        ...

    def most(self, tokens: int) -> int:
        """Pages that a sequence of `tokens` in the end holds at any one time, at most."""
        ...

    def room(self, pages: int) -> float:
        """Tokens of the longest sequence that so many pages are enough for."""
        ...

    def resume(self, kept: Sequence[bool], pages: int) -> int:
        """The most leading pages, at most `pages`, after which this group could go on; `kept` says which it has."""
        ...
