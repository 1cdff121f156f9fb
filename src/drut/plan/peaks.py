"""Converts a measured roof to the peaks that step ledgers compare with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from drut.errors import UnsupportedError
from drut.observe.ledger import Macs, Peaks, interpolated
from drut.plan.roof import Roof


def peaks(roof: Roof, threads: int) -> Peaks:
    """Returns the peaks of `threads` threads. Raises UnsupportedError if the roof has no multiply peaks (no native
    library)."""
    read, macs = figures(roof, threads)
    return Peaks(partial(interpolated, read), macs)


def figures(roof: Roof, threads: int) -> tuple[dict[int, float], Macs]:
    """Returns the figures of `threads` threads per second: bytes read by working set, and multiply-adds.

    Raises UnsupportedError if the roof has no multiply peaks (no native library).
    """
    if not roof.gmac_per_s:
        raise UnsupportedError("the roof has no multiply peaks: the native library is not built")
    count = _nearest(roof.read_gb_per_s, threads)
    read = {size: 1e9 * gb_per_s for size, gb_per_s in roof.read_gb_per_s[count].items()}
    return read, macs_per_s({name: by_threads[count] for name, by_threads in roof.gmac_per_s.items()})


def macs_per_s(gmacs: Mapping[str, float]) -> Macs:
    """Returns the peaks by class from GMAC/s by OPERANDS. Floats are multiplied as fp32 or bf16, whichever is faster:
    bf16 can be widened."""
    return Macs(1e9 * gmacs["int4"], 1e9 * gmacs["int8"], 1e9 * max(gmacs["fp32"], gmacs["bf16"]))


def _nearest(counts: Iterable[int], threads: int) -> int:
    """Returns the largest measured number of threads that is at most `threads`, or the smallest measured number."""
    return max((c for c in counts if c <= threads), default=min(counts))
