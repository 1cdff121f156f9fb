"""Pools: the memory of the pages of a KV group, which the layers above only move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Pool(ABC):
    """The pages of one KV group. Threads: call its methods between two steps, on the thread that runs them."""

    pages: int
    page_bytes: int

    @abstractmethod
    def export(self, pages: Sequence[int]) -> NDArray[np.uint8]:
        """Returns a copy of the bytes of `pages`, (pages, page_bytes), in host memory."""

    @abstractmethod
    def import_(self, pages: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Overwrites `pages` with `data`, (pages, page_bytes)."""

    @abstractmethod
    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies page `sources[i]` to page `targets[i]`. No page may be in both."""


class HostPool(Pool):
    """Pages in host memory, as one array."""

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
    """Returns the arrays of pools in host memory."""
    arrays = []
    for pool in pools:
        assert isinstance(pool, HostPool), "a backend loads plans over its own pools"
        arrays.append(pool.data)
    return arrays
