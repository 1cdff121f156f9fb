"""KV groups: layers whose keys and values live together. A prefix counts only as far as every group can resume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Group(Protocol):
    """One kind of state. `kind` is full, window, latent, index, state or drafter."""

    kind: str

    def resume(self, pages: int) -> int:
        """The most leading pages, at most `pages`, after which this group could go on. A group may leave holes:
        pages before that point of which it keeps nothing."""
        ...


class FullGroup:
    """Keeps the whole context: it can go on after any page."""

    kind = "full"

    def resume(self, pages: int) -> int:
        return pages


def resume_point(groups: Sequence[Group], pages: int) -> int:
    """The most leading pages after which every group could go on."""
    while True:
        agreed = min((group.resume(pages) for group in groups), default=pages)
        if agreed == pages:
            return pages
        pages = agreed
