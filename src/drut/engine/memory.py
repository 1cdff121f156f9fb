"""How much memory the KV cache takes, and how many pages each KV group gets of it.

A group that keeps the whole context needs pages with every token; a group with a window never more than its window and
two steps' rows for each sequence, and the ends of prefixes that wait to be gone on with. So windows get that, or a page
for every page of the others where the cache is smaller; the rest is for the group that keeps most.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from drut.cache.groups import Group, pages_for
from drut.cache.kinds import KINDS, Kinds
from drut.config import EngineConfig
from drut.errors import RequestError
from drut.kernels.kv import Layout

DEFAULT_SEQUENCES = 4  # the default cache holds so many sequences of full length, memory allowing
FREE_SHARE = 0.5  # of the free memory, for a cache sized by default


def make_groups(layouts: Sequence[Layout], step: int, kinds: Kinds = KINDS) -> list[Group]:
    """What the cache must know of groups with these layouts; `step`: rows of the largest step."""
    return [kinds[kv.kind](kv, step) for kv in layouts]


def pool_pages(layouts: Sequence[Layout], groups: Sequence[Group], context: int, config: EngineConfig) -> list[int]:
    """Units of each group, the widest first: in all what the settings cap it to, else what a few full sequences need
    and free memory allows."""
    enough = [group.enough(config.max_seqs) for group in groups]
    if config.kv_cache_gb is not None:
        room, each = int(config.kv_cache_gb * 1e9), sum(kv.page_bytes for kv in layouts)
        if room < each:
            raise RequestError(f"kv_cache_gb {config.kv_cache_gb} does not hold one page of {each} bytes")
        return split(layouts, room, enough)
    full = DEFAULT_SEQUENCES * pages_for(context)
    wanted = sum(min(full, most) * kv.page_bytes for kv, most in zip(layouts, enough, strict=True))
    return split(layouts, min(wanted, int(free_memory() * FREE_SHARE)), enough)


def split(layouts: Sequence[Layout], room: int, enough: Sequence[int]) -> list[int]:
    """Pages of each group in `room` bytes: all alike, but none past the first more than is `enough` for it."""
    pages = [0] * len(layouts)
    for i in range(len(layouts) - 1, -1, -1):  # the narrowest window is satisfied first
        each = sum(kv.page_bytes for kv in layouts[: i + 1])
        alike = max(1, room // each)
        pages[i] = min(alike, enough[i]) if i else alike
        room -= pages[i] * layouts[i].page_bytes
    return pages


def free_memory() -> int:
    """Bytes a process may take without swapping; 4 GB where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 4_000_000_000
