"""How far the figures of a run may be off, by resampling blocks of its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist

import msgspec
import numpy as np

from drut.bench.load.record import Record
from drut.bench.load.wire import Window
from drut.bench.metrics.distribution import Figure, Floats, figure, percentile
from drut.bench.metrics.request import Slo, Timing
from drut.bench.metrics.series import Arrivals
from drut.bench.metrics.summary import itl_samples, samples
from drut.bench.stats.intervals import student
from drut.bench.stats.samples import least_samples

LEAST_BLOCKS, MOST_BLOCKS = 10, 40
LEAST_BLOCK_S = 1.0
DRAWS = 500
CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True):
    """Where a figure lies at 95 % confidence. `noise_floor`: two runs like this one must differ by more than this
    share of the figure to be told apart; None where the interval has no end."""

    value: Figure
    low: Figure
    high: Figure
    noise_floor: float | None


class Intervals(msgspec.Struct, frozen=True):
    """By figure, of `blocks` blocks of `block_s` seconds; empty where the window is too short for 10 blocks. A
    percentile is there where there are samples enough for any claim about it (`least_samples`)."""

    blocks: int
    block_s: float
    figures: dict[str, Interval]


def intervals(records: Sequence[Record], timings: Sequence[Timing], window: Window, slo: Slo | None,
              seed: int = 0) -> Intervals:
    """Whole blocks are drawn with replacement, so what depends on each other within one stays together: requests go
    with the block in which they were scheduled, tokens with that in which they arrived."""
    blocks = min(MOST_BLOCKS, int(window.length / LEAST_BLOCK_S + 1e-9))
    if blocks < LEAST_BLOCKS:
        return Intervals(blocks, window.length / max(blocks, 1), {})
    edges = np.linspace(window.begin, window.end, blocks + 1)
    pairs: list[list[tuple[Record, Timing]]] = [[] for _ in range(blocks)]
    for record, timing in zip(records, timings, strict=True):
        if record.counted:
            at = int(np.searchsorted(edges, record.scheduled, "right")) - 1
            pairs[min(max(at, 0), blocks - 1)].append((record, timing))
    draws = np.random.default_rng(seed).integers(0, blocks, (DRAWS, blocks))
    result: dict[str, Interval] = {}
    arrivals = Arrivals(records, timings)
    if not arrivals.unknown:
        result["output_tokens_per_s"] = _rate(arrivals.within(edges), window, draws)
    if slo is not None:
        good = np.array([sum(slo.good(t) for _, t in block) for block in pairs], np.float64)
        result["goodput_per_s"] = _rate(good, window, draws)
    for name, percents, split in _LATENCIES:
        parts = [split(block)[0] * 1e3 for block in pairs]
        count = sum(map(len, parts))
        for percent in percents:
            # Drawn again from few, a percentile near the slowest of them cannot come out slower than that.
            found = _percentile(parts, percent, draws) if count >= least_samples(percent) else None
            if found is not None:
                result[f"{name}_p{percent}"] = found
    return Intervals(blocks, window.length / blocks, result)


_Split = Callable[[Sequence[tuple[Record, Timing]]], tuple[Floats, int]]
_LATENCIES: tuple[tuple[str, tuple[int, ...], _Split], ...] = (
    ("ttft_ms", (50, 95, 99), lambda block: samples(block, lambda t: t.ttft)),
    ("itl_ms", (50, 95), itl_samples),
    ("tpot_ms", (50, 95), lambda block: samples(block, lambda t: t.tpot)),
    ("e2e_ms", (50, 95), lambda block: samples(block, lambda t: t.e2e)),
)


def _rate(blocks: Floats, window: Window, draws: np.ndarray) -> Interval:
    return _interval(float(blocks.sum()) / window.length, blocks[draws].sum(1) / window.length, len(blocks))


def _percentile(blocks: list[Floats], percent: int, draws: np.ndarray) -> Interval | None:
    """Samples are sorted once; a draw of blocks only changes how often each counts."""
    values, owner = np.concatenate(blocks), np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    times = np.stack([np.bincount(draw, minlength=len(blocks)) for draw in draws])
    resampled = np.empty(len(draws))
    for i, weight in enumerate(times):
        below = np.cumsum(weight[owner])
        rank = max(-(-percent * int(below[-1]) // 100), 1)
        resampled[i] = values[min(int(np.searchsorted(below, rank)), len(values) - 1)]
    return _interval(percentile(values, percent), resampled, len(blocks))


def _interval(value: float, resampled: Floats, blocks: int) -> Interval:
    """The percentile interval at levels that allow for few blocks (Hesterberg, 2015, "expanded percentile")."""
    t = student((1 + CONFIDENCE) / 2, blocks - 1) * (blocks / (blocks - 1)) ** 0.5
    tail = NormalDist().cdf(-t)
    low, high = (float(np.quantile(resampled, q, method="nearest")) for q in (tail, 1 - tail))
    floor = None
    if np.isfinite(high) and value > 0:
        floor = 2**0.5 * (high - low) / 2 / value
    return Interval(figure(value), figure(low), figure(high), floor)
