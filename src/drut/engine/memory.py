"""The size of the KV cache, and the number of pages of each KV group.

A group with full attention needs pages for every token. A group with a sliding window needs at most, for each sequence,
pages for its window and the rows of two steps, and the ends of cached prefixes that may be resumed. So a window group
gets that number of pages, or as many pages as the other groups if the cache is smaller. The rest is for full attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drut.cache.groups import KvGroup, pages_for
from drut.cache.kinds import KINDS, Kinds
from drut.config import EngineConfig
from drut.errors import RequestError
from drut.kernels.kv import CacheLayout

DEFAULT_SEQUENCES = 4  # the default cache holds this number of sequences of full length, if memory allows
FREE_SHARE = 0.5  # maximum share of the free memory for a cache of default size


def make_groups(layouts: Sequence[CacheLayout], step: int, kinds: Kinds = KINDS) -> list[KvGroup]:
    """Returns the KV groups of these layouts; `step`: maximum rows of a step."""
    return [kinds[kv.kind](kv, step) for kv in layouts]


def pool_pages(layouts: Sequence[CacheLayout], groups: Sequence[KvGroup], context: int,
               config: EngineConfig) -> list[int]:
    """Returns the number of pages of each group, the widest window first: as the settings bound the memory, else for
    DEFAULT_SEQUENCES full sequences if free memory allows. Raises RequestError if not one page fits."""
    enough = [group.enough(config.max_seqs) for group in groups]
    if config.kv_cache_gb is not None:
        room, each = int(config.kv_cache_gb * 1e9), sum(kv.page_bytes for kv in layouts)
        if room < each:
            raise RequestError(f"kv_cache_gb {config.kv_cache_gb} does not hold one page of {each} bytes")
        return split(layouts, room, enough)
    full = DEFAULT_SEQUENCES * pages_for(context)
    wanted = sum(min(full, most) * kv.page_bytes for kv, most in zip(layouts, enough, strict=True))
    return split(layouts, min(wanted, int(free_memory() * FREE_SHARE)), enough)


def split(layouts: Sequence[CacheLayout], room: int, enough: Sequence[int]) -> list[int]:
    """Returns the pages of each group in `room` bytes: equal numbers, but at most `enough` after the first of the
    groups that want most."""
    pages = [0] * len(layouts)
    order = sorted(range(len(layouts)), key=lambda i: -enough[i])
    for place in range(len(order) - 1, -1, -1):  # the narrowest window is satisfied first
        i, each = order[place], sum(layouts[j].page_bytes for j in order[: place + 1])
        alike = max(1, room // each)
        pages[i] = min(alike, enough[i]) if place else alike
        room -= pages[i] * layouts[i].page_bytes
    return pages


def free_memory() -> int:
    """Returns the bytes that a process may allocate without swapping; 4 GB if the system does not report them."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4_000_000_000
