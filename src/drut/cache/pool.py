"""The page pool of a KV group: the only owner of its pages."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.kernels.descriptor import RELAY
from drut.kernels.kv import PAGE_TOKENS
from drut.kernels.pool import Pool

POISON = 0xFF  # a NaN in bf16, in fp32 and in the scales of int8
EMPTY = -2  # stamp of an empty slot


class KvCorruptionError(RuntimeError):
    """A page or a slot has a wrong state. This is a bug, never a user's error."""


class PageState(IntEnum):
    FREE = 0
    PRIVATE = 1  # mapped by one sequence, which may write it
    CACHED = 2  # in the prefix tree, full, never written again


class PagePool:
    """Allocates and frees pages and hands full pages to the tree. Invariant: `free + private + cached == total`."""

    def __init__(self, memory: Pool, canary: Canary | None = None) -> None:
        self.memory = memory
        self.total = memory.pages
        self.canary = canary
        self._state = bytearray(self.total)
        self._free = list(range(self.total - 1, -1, -1))
        self.cached = 0
        self.complete = np.zeros(self.total, np.bool_)  # set by a drafter that filled the page; allocation clears it

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def private(self) -> int:
        return self.total - self.cached - len(self._free)

    def allocate(self) -> int:
        """Returns a free page, which becomes private. There must be one."""
        page = self._free.pop()
        self._state[page] = PageState.PRIVATE
        self.complete[page] = False
        return page

    def mark_cached(self, page: int) -> None:
        """Hands a full private page to the tree."""
        self._move(page, PageState.PRIVATE, PageState.CACHED)
        self.cached += 1
        if self.canary:
            self.canary.seal(page)

    def free_private(self, pages: Iterable[int]) -> None:
        """Frees private pages. Lifetime: no block table may map them any more."""
        for page in pages:
            self._move(page, PageState.PRIVATE, PageState.FREE)
            self._released(page)

    def free_cached(self, page: int) -> None:
        """Frees a page that the tree evicts."""
        self._move(page, PageState.CACHED, PageState.FREE)
        self.cached -= 1
        self._released(page)

    def _released(self, page: int) -> None:
        self._free.append(page)
        if self.canary:
            self.canary.release(page)

    def _move(self, page: int, before: PageState, after: PageState) -> None:
        if self._state[page] != before:
            raise KvCorruptionError(f"page {page} is {PageState(self._state[page]).name}, expected {before.name}")
        self._state[page] = after

    def check_mapped(self, pages: Sequence[int], shared: int) -> None:
        """Raises KvCorruptionError unless the first `shared` pages of a block table are cached, the others private."""
        for i, page in enumerate(pages):
            expected = PageState.CACHED if i < shared else PageState.PRIVATE
            if self._state[page] != expected:
                raise KvCorruptionError(
                    f"entry {i} of a block table maps page {page}, which is {PageState(self._state[page]).name}, "
                    f"expected {expected.name}")

    def check(self) -> None:
        """Recounts the invariant."""
        counts = [self._state.count(state) for state in PageState]
        if counts[PageState.FREE] != len(self._free) or counts[PageState.CACHED] != self.cached:
            raise KvCorruptionError(f"pages by state are {counts}; {len(self._free)} are free, {self.cached} cached")


class Changes(NamedTuple):
    """Pages freed and pages filled since the previous step."""

    freed: frozenset[int]
    filled: frozenset[int]


class Canary:
    """Debug mode: each slot has a stamp (token, position) of the last write, freed pages are poisoned, and full pages
    are sealed with a checksum. All are checked before a step reads them.

    Hazard: an in-flight step may still read a page that was freed since its launch, so poisoning waits for `settle`,
    which runs between two steps.
    """

    def __init__(self, memory: Pool, window: int = 0) -> None:
        """`window`: latest positions that a row sees, its own included; 0: all."""
        self._memory, self._window = memory, window
        self._stamps = np.full((memory.pages * PAGE_TOKENS, 2), EMPTY, np.int64)
        self._sums: dict[int, int] = {}
        self._to_seal: set[int] = set()
        self._to_poison: set[int] = set()

    def release(self, page: int) -> None:
        self._to_seal.discard(page)
        self._to_poison.add(page)

    def seal(self, page: int) -> None:
        self._to_seal.add(page)

    def collect(self) -> Changes:
        """Returns the changes since the last call, for `settle` before the next step is launched."""
        changes = Changes(frozenset(self._to_poison), frozenset(self._to_seal))
        self._to_poison.clear()
        self._to_seal.clear()
        return changes

    def settle(self, changes: Changes) -> None:
        """Poisons freed pages and computes the checksums of filled pages. Runs between two steps."""
        poison = np.full((1, self._memory.page_bytes), POISON, np.uint8)
        for page in changes.freed:
            self._memory.import_([page], poison)
            self._stamps[page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS] = EMPTY
            self._sums.pop(page, None)
        for page in changes.filled:
            self._sums[page] = self._sum(page)

    def _sum(self, page: int) -> int:
        return zlib.crc32(self._memory.export([page]).data)

    def write(self, pages: Sequence[int], tokens: Sequence[int], start: int) -> None:
        """Stamps the slots that the next step writes: `tokens` from position `start` on."""
        slots = _slots(pages, start, start + len(tokens))
        self._stamps[slots, 0] = tokens
        self._stamps[slots, 1] = np.arange(start, start + len(tokens))

    def verify(self, pages: Sequence[int], tokens: Sequence[int]) -> None:
        """Raises KvCorruptionError unless the slots from position 0 on hold `tokens` and sealed pages have their
        checksums. With a window, checks only what the row after `tokens` sees.

        A token that the host did not know yet (RELAY) is checked by its position only.
        """
        begin, end = max(0, len(tokens) + 1 - self._window) if self._window else 0, len(tokens)
        if begin >= end:
            return
        seen = tokens[begin:]
        slots = _slots(pages, begin, end)
        if slots.min() < 0:
            raise KvCorruptionError(f"a row at position {end} reads a hole of its block table")
        known = (self._stamps[slots, 0] != RELAY) & (np.asarray(seen) != RELAY)
        wrong = (known & (self._stamps[slots, 0] != seen)) | (self._stamps[slots, 1] != np.arange(begin, end))
        if wrong.any():
            at = int(wrong.argmax())
            token, position = self._stamps[slots[at]]
            raise KvCorruptionError(f"slot {slots[at]} holds token {token} of position {position}, "
                                    f"expected token {seen[at]} of position {begin + at}")
        for page in pages[begin // PAGE_TOKENS : end // PAGE_TOKENS]:
            if page in self._sums and self._sums[page] != self._sum(page):
                raise KvCorruptionError(f"the bytes of page {page} changed after it was full")


def _slots(pages: Sequence[int], start: int, end: int) -> NDArray[np.int64]:
    position = np.arange(start, end)
    return np.asarray(pages, np.int64)[position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
