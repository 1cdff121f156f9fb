"""A measured roof as the peaks a ledger compares with."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from drut.errors import UnsupportedError
from drut.observe.ledger import Peaks
from drut.plan.roof import Figures, Roof


def peaks(roof: Roof, threads: int) -> Peaks:
    """Of `threads` threads. UnsupportedError where the roof has no multiply peaks (no native library)."""
    if roof.int8_gmac_per_s is None or roof.bf16_gmac_per_s is None:
        raise UnsupportedError("the roof has no multiply peaks: the native library is not built")
    count = _nearest(roof.read_gb_per_s, threads)
    read = roof.read_gb_per_s[count]
    return Peaks(lambda working_set: 1e9 * bandwidth(read, working_set), 1e9 * roof.int8_gmac_per_s[count],
                 1e9 * roof.bf16_gmac_per_s[count])


def bandwidth(read: Figures, working_set: int) -> float:
    """GB a second for a working set of so many bytes. Between measured sizes the time a byte is interpolated."""
    sizes = sorted(read)
    if working_set <= sizes[0]:
        return read[sizes[0]]
    for small, large in pairwise(sizes):
        if working_set <= large:
            part = (working_set - small) / (large - small)
            return 1 / ((1 - part) / read[small] + part / read[large])
    return read[sizes[-1]]


def _nearest(counts: Iterable[int], threads: int) -> int:
    """The measured number of threads closest from below."""
    return max((c for c in counts if c <= threads), default=min(counts))
