"""Where a backend keeps the pages of a KV group, for layers above that only move them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Pool(ABC):
    """Pages of one KV group. Its methods are called between two steps, on the thread that runs them."""

    pages: int
    page_bytes: int

    @abstractmethod
    def export(self, pages: Sequence[int]) -> NDArray[np.uint8]:
        """A copy of the bytes of `pages`, (pages, page_bytes), in the host's memory."""

    @abstractmethod
    def import_(self, pages: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Overwrites `pages` by `data`, (pages, page_bytes)."""

    @abstractmethod
    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Overwrites each of `targets` by the page in the same place of `sources`. A page is not in both."""


class HostPool(Pool):
    """Pages in the host's memory, as one array."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        """`data` is (pages, page_bytes)."""
        self.data = data
        self.pages, self.page_bytes = data.shape

    def export(self, pages: Sequence[int]) -> NDArray[np.uint8]:
        return self.data[list(pages)]

    def import_(self, pages: Sequence[int], data: NDArray[np.uint8]) -> None:
        self.data[list(pages)] = data

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        self.data[list(targets)] = self.data[list(sources)]


def on_host(pools: Sequence[Pool]) -> list[NDArray[np.uint8]]:
    """The arrays of pools that a backend of the host made."""
    arrays = []
    for pool in pools:
        assert isinstance(pool, HostPool), "a backend loads plans over its own pools"
        arrays.append(pool.data)
    return arrays
