"""The page pool: the one owner of KV pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drut.kernels.kv import PAGE_TOKENS

POISON = 0xFF  # a NaN in bf16 and in fp32


class KvCorruptionError(RuntimeError):
    """A slot does not hold the token and position it should: a bug, never a user's error."""


class PagePool:
    """Hands out pages and takes them back. `free + used == total` always.

    In debug mode freed pages are poisoned, and every slot carries the (token, position) last written to it.
    """

    def __init__(self, memory: NDArray[np.uint8], *, debug: bool = False) -> None:
        """`memory` is (pages, page_bytes)."""
        self.memory = memory
        self.total = len(memory)
        self.debug = debug
        self._free = list(range(self.total - 1, -1, -1))
        self._used: set[int] = set()
        self._stamps = np.full((self.total * PAGE_TOKENS, 2), -1, np.int64) if debug else None

    @property
    def free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """`count` pages, or None if there are not so many."""
        if count > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(count)]
        self._used.update(pages)
        return pages

    def give_back(self, pages: Sequence[int]) -> None:
        """Frees pages. Nothing may map them any more."""
        for page in pages:
            self._used.remove(page)
        self._free.extend(pages)
        if self._stamps is not None:
            for page in pages:
                self.memory[page] = POISON
                self._stamps[page * PAGE_TOKENS : (page + 1) * PAGE_TOKENS] = -1

    def stamp(self, pages: Sequence[int], tokens: Sequence[int], start: int) -> None:
        """Notes that `tokens` are being written from position `start` on. Debug mode only."""
        if self._stamps is not None:
            slots = _slots(pages, start, start + len(tokens))
            self._stamps[slots, 0] = tokens
            self._stamps[slots, 1] = np.arange(start, start + len(tokens))

    def verify(self, pages: Sequence[int], tokens: Sequence[int]) -> None:
        """KvCorruptionError unless the slots from position 0 on hold `tokens`. Debug mode only."""
        if self._stamps is None or not tokens:
            return
        slots = _slots(pages, 0, len(tokens))
        wrong = (self._stamps[slots, 0] != tokens) | (self._stamps[slots, 1] != np.arange(len(tokens)))
        if wrong.any():
            at = int(wrong.argmax())
            token, position = self._stamps[slots[at]]
            raise KvCorruptionError(f"slot {slots[at]} holds token {token} of position {position}, "
                                    f"expected token {tokens[at]} of position {at}")

    def check(self) -> None:
        """The invariant: every page is free or used, once."""
        if len(self._free) + len(self._used) != self.total or self._used.intersection(self._free):
            raise KvCorruptionError(f"{len(self._free)} free and {len(self._used)} used pages are not {self.total}")


def _slots(pages: Sequence[int], start: int, end: int) -> NDArray[np.int64]:
    position = np.arange(start, end)
    return np.asarray(pages, np.int64)[position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
