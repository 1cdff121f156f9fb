"""Confidence intervals of a run's figures, from blocks of its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Slo, Timing
from drut.bench.metrics.series import Arrivals
from drut.bench.metrics.summary import itl_samples, samples
from drut.bench.stats.bootstrap import Interval, Resampling
from drut.bench.stats.distribution import Floats
from drut.bench.stats.samples import least_samples

MIN_BLOCKS, MAX_BLOCKS = 10, 40
MIN_BLOCK_S = 1.0


class Intervals(msgspec.Struct, frozen=True):
    """Intervals by figure, from `blocks` blocks of `block_s` seconds; empty if the window is too short for 10 blocks. A
    percentile is included if there are enough samples for a claim about it (`least_samples`)."""

    blocks: int
    block_s: float
    figures: dict[str, Interval]


def intervals(records: Sequence[LoadRecord], timings: Sequence[Timing], window: MeasureWindow,
              slo: Slo | None) -> Intervals:
    """Computes the intervals. A request belongs to the block in which it was scheduled, a token to the block in which
    it arrived."""
    blocks = min(MAX_BLOCKS, int(window.length / MIN_BLOCK_S + 1e-9))
    if blocks < MIN_BLOCKS:
        return Intervals(blocks, window.length / max(blocks, 1), {})
    edges = np.linspace(window.begin, window.end, blocks + 1)
    pairs: list[list[tuple[LoadRecord, Timing]]] = [[] for _ in range(blocks)]
    for record, timing in zip(records, timings, strict=True):
        if record.counted:
            at = int(np.searchsorted(edges, record.scheduled, "right")) - 1
            pairs[min(max(at, 0), blocks - 1)].append((record, timing))
    resampling = Resampling(blocks)
    result: dict[str, Interval] = {}
    arrivals = Arrivals(records, timings)
    if not arrivals.unknown:
        result["output_tokens_per_s"] = resampling.rate(arrivals.within(edges), window.length)
    if slo is not None:
        good = np.array([sum(slo.good(t) for _, t in block) for block in pairs], np.float64)
        result["goodput_per_s"] = resampling.rate(good, window.length)
    for name, percents, split in _LATENCIES:
        parts = [split(block)[0] * 1e3 for block in pairs]
        count = sum(map(len, parts))
        for percent in percents:
            # With few samples, resampling cannot make a percentile near the slowest sample slower than that sample.
            found = resampling.percentile(parts, percent) if count >= least_samples(percent) else None
            if found is not None:
                result[f"{name}_p{percent}"] = found
    return Intervals(blocks, window.length / blocks, result)


_Split = Callable[[Sequence[tuple[LoadRecord, Timing]]], tuple[Floats, int]]
_LATENCIES: tuple[tuple[str, tuple[int, ...], _Split], ...] = (
    ("ttft_ms", (50, 95, 99), lambda block: samples(block, lambda t: t.ttft)),
    ("itl_ms", (50, 95), itl_samples),
    ("tpot_ms", (50, 95), lambda block: samples(block, lambda t: t.tpot)),
    ("e2e_ms", (50, 95), lambda block: samples(block, lambda t: t.e2e)),
)
