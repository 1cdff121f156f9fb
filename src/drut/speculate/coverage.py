"""Coverage: the leading positions of each sequence for which a drafter has stored its keys and values.

A drafter's pages are a KV group of the target's cache, but the drafter fills them later than the target fills its own,
or never. So a prefix that a sequence shares may have pages that no drafter has filled: holes, which are computed again.
A page that is filled with tokens of the host is marked as complete in its pool, and stays so while it is cached.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drut.cache.cache import BlockTable
from drut.cache.pool import PagePool
from drut.kernels.kv import PAGE_TOKENS
from drut.speculate.drafter import DraftInput

NO_PAGES = np.zeros(0, np.int32)


class Filled:
    """What the drafter last stored for a sequence: rows of the first `base` tokens and of the drafts after them, in
    `pages`."""

    __slots__ = ("base", "drafts", "epoch", "pages")

    def __init__(self, epoch: int, base: int, drafts: Sequence[int], pages: NDArray[np.int32]) -> None:
        self.epoch, self.base, self.drafts, self.pages = epoch, base, drafts, pages

    def rows(self, tokens: Sequence[int]) -> int:
        """Returns how many leading rows are those of `tokens`: a draft that was not accepted has the wrong row."""
        after = tokens[self.base : self.base + len(self.drafts)]
        equal = next((i for i, (a, b) in enumerate(zip(self.drafts, after, strict=False)) if a != b), len(after))
        return self.base + equal


class Coverage:
    """Follows the rows of one drafter in the pages of `group`, the number of its KV group in the cache."""

    def __init__(self, pool: PagePool, group: int) -> None:
        self._pool, self._group = pool, group
        self._filled: dict[int, Filled] = {}

    def rows(self, given: DraftInput) -> int:
        """Returns how many leading rows the drafter has, at least one less than there are tokens, and marks the pages
        that they fill.

        The cache may have replaced a page by one of the prefix tree with the same tokens, which may be a hole.
        """
        assert given.table is not None
        mapped, last = self._pages(given.table), self._filled.get(given.sequence)
        if last is None or last.epoch != given.epoch:  # all pages are others' work, or new
            last = Filled(given.epoch, len(mapped) * PAGE_TOKENS, (), NO_PAGES)
        rows = min(last.rows(given.tokens), len(mapped) * PAGE_TOKENS)
        pages = mapped[: -(-rows // PAGE_TOKENS)]
        good = self._pool.complete[pages]
        own = min(len(last.pages), len(pages))
        good[:own] |= pages[:own] == last.pages[:own]
        if not good.all():
            rows = int(good.argmin()) * PAGE_TOKENS
        rows = min(rows, len(given.tokens) - 1)
        self._pool.complete[mapped[: rows // PAGE_TOKENS]] = True
        self._filled[given.sequence] = Filled(given.epoch, rows, (), mapped[: -(-rows // PAGE_TOKENS)])
        return rows

    def store(self, given: DraftInput, rows: int, drafts: Sequence[int] = ()) -> None:
        """Records that the drafter has stored the first `rows` rows of the tokens, and then those of `drafts`."""
        assert given.table is not None
        pages = self._pages(given.table)[: -(-(rows + len(drafts)) // PAGE_TOKENS)]
        self._filled[given.sequence] = Filled(given.epoch, rows, tuple(drafts), pages)

    def forget(self, sequence: int) -> None:
        self._filled.pop(sequence, None)

    def _pages(self, table: BlockTable) -> NDArray[np.int32]:
        return np.array(table.maps[self._group], np.int32)  # a copy: an array that NumPy views cannot grow
