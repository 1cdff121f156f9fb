"""The gaps between tokens (ITL) of a run, from the arrivals in its file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from drut.bench.metrics.tokens import spread
from drut.bench.render.section import ChartAxis, Plot, ReportLine, Table
from drut.bench.render.tables import cell
from drut.bench.report.sections.common import MIN_MS
from drut.bench.result.schema import ReportRequest, Result
from drut.bench.stats.distribution import Floats, percentile

_MAX_SECONDS = 240


def gaps(q: ReportRequest) -> tuple[Floats, Floats]:
    """Returns the gap before each token after the first, in ms, and the time of each from the start of the load. Empty
    for a failed request, for fewer than two arrivals, and for a run whose file has none (--no-arrivals)."""
    none = np.zeros(0), np.zeros(0)
    arrivals, tokens = q.arrivals_ms, q.output_tokens
    if q.failure is not None or not arrivals or tokens is None or tokens < 2:
        return none
    weights = q.arrival_reported if q.arrival_reported and min(q.arrival_reported) >= 0 else q.arrival_chars
    if weights is None or len(weights) != len(arrivals):
        return none
    parts = spread(tokens, weights)
    timed = np.flatnonzero(parts)
    times, parts = np.asarray(arrivals, np.float64)[timed], parts[timed]
    if len(timed) < 2:
        return none
    itl = np.concatenate((np.zeros(parts[0] - 1), np.repeat(np.diff(times) / parts[1:], parts[1:])))
    return itl, q.scheduled_ms + np.concatenate((np.full(parts[0] - 1, times[0]), np.repeat(times[1:], parts[1:])))


def of_run(r: Result) -> Floats:
    """Returns all gaps of the measured requests."""
    return np.concatenate([np.zeros(0), *(gaps(q)[0] for q in r.requests if q.measured)])


def drawn(r: Result) -> list[float]:
    """Returns the gaps for a logarithmic axis: those below the first percentile, or below a hundredth of the median,
    are drawn there, because tokens that arrive together have gaps near 0."""
    values = np.sort(of_run(r))
    if not len(values):
        return []
    least = max(percentile(values, 1), percentile(values, 50) / 100)
    return [float(value) for value in np.maximum(values, least)]


def by_second(runs: Mapping[str, Result]) -> Plot | None:
    """Plots median and p99 of the gaps that end in each second of the window, by run."""
    lines, rows = [], []
    for who, r in runs.items():
        pairs = [gaps(q) for q in r.requests]
        values = np.concatenate([np.zeros(0), *(itl for itl, _ in pairs)])
        seconds = np.concatenate([np.zeros(0), *(at for _, at in pairs)]) / 1e3 - r.series.begin_s
        step = -(-len(r.series.output_tokens) // _MAX_SECONDS) or 1
        points: dict[int, list[tuple[float, float]]] = {50: [], 99: []}
        for begin in range(0, len(r.series.output_tokens), step):
            inside = np.sort(values[(seconds >= begin) & (seconds < begin + step)])
            if len(inside):
                found = {p: max(percentile(inside, p), MIN_MS) for p in points}
                for p, value in found.items():
                    points[p].append((begin + step / 2, value))
                rows.append([who, f"{begin + step / 2:g}", str(len(inside)), *(cell(v) for v in found.values())])
        if points[50]:
            lines += [ReportLine("median" if len(runs) == 1 else f"{who}, median", who, points[50]),
                      ReportLine("p99" if len(runs) == 1 else f"{who}, p99", who, points[99], dash=1)]
    if not lines:
        return None
    return Plot("ITL by second", ChartAxis("s"), ChartAxis("ITL, ms", log=True), lines,
                Table("ITL by second, ms", ["", "s", "gaps", "median", "p99"], rows))
