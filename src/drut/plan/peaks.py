"""Converts a measured roof to the peaks that step ledgers compare with."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from drut.errors import UnsupportedError
from drut.observe.ledger import Peaks, interpolated
from drut.plan.roof import Roof


def peaks(roof: Roof, threads: int) -> Peaks:
    """Returns the peaks of `threads` threads. Raises UnsupportedError if the roof has no multiply peaks (no native
    library)."""
    read, int8_macs, float_macs = figures(roof, threads)
    return Peaks(partial(interpolated, read), int8_macs, float_macs)


def figures(roof: Roof, threads: int) -> tuple[dict[int, float], float, float]:
    """Returns the figures of `threads` threads per second: bytes read by working set, int8 and float multiply-adds.

    Raises UnsupportedError if the roof has no multiply peaks (no native library).
    """
    if roof.int8_gmac_per_s is None or roof.bf16_gmac_per_s is None:
        raise UnsupportedError("the roof has no multiply peaks: the native library is not built")
    count = _nearest(roof.read_gb_per_s, threads)
    read = {size: 1e9 * gb_per_s for size, gb_per_s in roof.read_gb_per_s[count].items()}
    return read, 1e9 * roof.int8_gmac_per_s[count], 1e9 * roof.bf16_gmac_per_s[count]


def _nearest(counts: Iterable[int], threads: int) -> int:
    """Returns the largest measured number of threads that is at most `threads`, or the smallest measured number."""
    return max((c for c in counts if c <= threads), default=min(counts))
