"""The page pool of a KV group: the one owner of its pages."""

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
EMPTY = -2  # stamp of a slot that holds nothing


class KvCorruptionError(RuntimeError):
    """A page or a slot is not what it should be: a bug, never a user's error."""


class PageState(IntEnum):
    FREE = 0
    PRIVATE = 1  # mapped by one sequence, which may write it
    CACHED = 2  # in the prefix tree, full, never written again


class PagePool:
    """Hands out pages, lets the tree keep them, takes them back. `free + private + cached == total` always."""

    def __init__(self, memory: Pool, canary: Canary | None = None) -> None:
        self.memory = memory
        self.total = memory.pages
        self.canary = canary
        self._state = bytearray(self.total)
        self._free = list(range(self.total - 1, -1, -1))
        self.cached = 0

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def private(self) -> int:
        return self.total - self.cached - len(self._free)

    def take(self) -> int:
        """A free page, now private. There must be one."""
        page = self._free.pop()
        self._state[page] = PageState.PRIVATE
        return page

    def keep(self, page: int) -> None:
        """A private page that is full becomes the tree's."""
        self._move(page, PageState.PRIVATE, PageState.CACHED)
        self.cached += 1
        if self.canary:
            self.canary.seal(page)

    def free_private(self, pages: Iterable[int]) -> None:
        """Frees private pages. No block table may map them any more."""
        for page in pages:
            self._move(page, PageState.PRIVATE, PageState.FREE)
            self._released(page)

    def free_cached(self, page: int) -> None:
        """Frees a page the tree evicts."""
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
        """KvCorruptionError unless the first `shared` pages of a block table are the tree's, the rest private."""
        for i, page in enumerate(pages):
            expected = PageState.CACHED if i < shared else PageState.PRIVATE
            if self._state[page] != expected:
                raise KvCorruptionError(
                    f"entry {i} of a block table maps page {page}, which is {PageState(self._state[page]).name}, "
                    f"expected {expected.name}")

    def check(self) -> None:
        """The invariant, counted anew."""
        counts = [self._state.count(state) for state in PageState]
        if counts[PageState.FREE] != len(self._free) or counts[PageState.CACHED] != self.cached:
            raise KvCorruptionError(f"pages by state are {counts}; {len(self._free)} are free, {self.cached} cached")


class Changes(NamedTuple):
    """Pages freed and pages filled since the step before."""

    freed: frozenset[int]
    filled: frozenset[int]


class Canary:
    """Debug mode: each slot carries the (token, position) last written, freed pages are poisoned, full pages sealed
    with a checksum. Checked before a step reads them.

    Poisoning waits for `settle`, which runs between two steps: a step launched before may still
    read a page freed since.
    """

    def __init__(self, memory: Pool, window: int = 0) -> None:
        """`window`: positions that a row sees, its own the last; 0: all."""
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
        """What happened since the last call, for `settle` before the step launched next."""
        changes = Changes(frozenset(self._to_poison), frozenset(self._to_seal))
        self._to_poison.clear()
        self._to_seal.clear()
        return changes

    def settle(self, changes: Changes) -> None:
        """Between two steps: poisons what was freed, sums what was filled."""
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
        """Notes that the coming step writes `tokens` from position `start` on."""
        slots = _slots(pages, start, start + len(tokens))
        self._stamps[slots, 0] = tokens
        self._stamps[slots, 1] = np.arange(start, start + len(tokens))

    def verify(self, pages: Sequence[int], tokens: Sequence[int]) -> None:
        """KvCorruptionError unless the slots from position 0 on hold `tokens`, and sealed pages their bytes; with a
        window, those that the row after `tokens` sees.

        A token the host did not know yet (RELAY) is checked by position alone.
        """
        begin, end = max(0, len(tokens) + 1 - self._window) if self._window else 0, len(tokens)
        if begin >= end:
            return
        seen = tokens[begin:]
        slots = _slots(pages, begin, end)
        if slots.min() < 0:
            raise KvCorruptionError(f"a row at position {end} sees a hole of its block table")
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
