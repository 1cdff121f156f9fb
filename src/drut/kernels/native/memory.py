"""Memory for weights, pages and activations: zeroed, allocated on first use, in huge pages if the kernel has them."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

ALIGN = 64
HUGE = 2 << 20


def reserve(nbytes: int, *, huge: bool = False) -> NDArray[np.uint8]:
    """Returns `nbytes` zero bytes on page boundaries. The kernel allocates physical memory at the first write.

    Raises MemoryError if the system grants no such range.
    """
    try:
        region = mmap.mmap(-1, max(nbytes, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError):
        raise MemoryError(f"unable to reserve {nbytes / 1e9:.1f} GB") from None
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        region.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(region, np.uint8, nbytes)


class Arena:
    """Allocates packed weights one after another in large mappings, so that huge pages serve them."""

    def __init__(self, chunk: int = 64 << 20) -> None:
        self._chunk = chunk
        self._region = reserve(0)
        self._used = 0

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """Returns `nbytes` zero bytes, aligned to a cache line."""
        if self._used + nbytes > self._region.nbytes:
            self._region = reserve(max(self._chunk, nbytes), huge=True)
            self._used = 0
        out = self._region[self._used : self._used + nbytes]
        self._used += -(-nbytes // ALIGN) * ALIGN
        return out
