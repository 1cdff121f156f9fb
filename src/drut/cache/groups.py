"""KV groups: layers whose keys and values live together. A prefix counts only as far as every group can resume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from drut.kernels.kv import PAGE_TOKENS


def pages_for(tokens: int) -> int:
    return -(-tokens // PAGE_TOKENS)


class Group(Protocol):
    """One kind of state. `kind` is full or window."""

    kind: str

    def first(self, position: int) -> int:
        """The first page that rows from `position` on read; those before it may be gone."""
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


class FullGroup:
    """Keeps the whole context: it can go on after any page, as long as none before is missing."""

    kind = "full"

    def first(self, position: int) -> int:
        return 0

    def most(self, tokens: int) -> int:
        return pages_for(tokens)

    def room(self, pages: int) -> float:
        return pages * PAGE_TOKENS

    def resume(self, kept: Sequence[bool], pages: int) -> int:
        return next((i for i in range(pages) if not kept[i]), pages)


@dataclass(frozen=True)
class WindowGroup:
    """Keeps what a row can see: `window` positions, its own the last. `step`: rows of the largest step."""

    window: int
    step: int
    kind = "window"

    def first(self, position: int) -> int:
        return max(0, position + 1 - self.window) // PAGE_TOKENS

    @property
    def bound(self) -> int:
        """Pages that any sequence gets along with: the window before a step that runs, its rows, the next step's."""
        return pages_for(self.window + 2 * self.step) + 2

    def most(self, tokens: int) -> int:
        return min(pages_for(tokens), self.bound)

    def room(self, pages: int) -> float:
        return math.inf if pages >= self.bound else pages * PAGE_TOKENS

    def resume(self, kept: Sequence[bool], pages: int) -> int:
        at = pages  # pages at..pages are there
        while at > self.first(pages * PAGE_TOKENS):
            at -= 1
            if not kept[at]:
                pages = at
        return pages


def resume_point(groups: Sequence[Group], kept: Sequence[Sequence[bool]], pages: int) -> int:
    """The most leading pages after which every group could go on; `kept` by group and page."""
    while True:
        agreed = min((group.resume(has, pages) for group, has in zip(groups, kept, strict=True)), default=pages)
        if agreed == pages:
            return pages
        pages = agreed
