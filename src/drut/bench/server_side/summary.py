"""Summarizes the pages scraped before, during and after a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from drut.bench.server_side.names import COUNTERS, GAUGES, HISTOGRAMS, EngineMetrics, MetricSource
from drut.bench.server_side.page import Page, ScrapedHistogram

QUANTILES = (0.5, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class ScrapedDistribution:
    """The change of a server's histogram over the run. A percentile lies above the first bound and is at most the
    second (None: no upper bound); its exact value is unknown."""

    count: int
    mean_ms: float
    percentiles_ms: dict[str, tuple[float, float | None]]


@dataclass(frozen=True)
class Total:
    """The change of a counter over the run."""

    total: float
    per_s: float


@dataclass(frozen=True)
class GaugeLevel:
    """The values of a gauge, over the samples taken during the run."""

    mean: float
    max: float


@dataclass(frozen=True)
class ServerSide:
    """The server's own metrics of a run. Quantities that its engine does not report are missing."""

    engine: str | None = None
    url: str | None = None
    seconds: float = 0.0  # between the first and the last scrape
    scrapes: int = 0
    failed_scrapes: int = 0
    distributions: dict[str, ScrapedDistribution] = field(default_factory=dict)
    totals: dict[str, Total] = field(default_factory=dict)
    levels: dict[str, GaugeLevel] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)  # by quantity: differences of its definition
    problems: list[str] = field(default_factory=list)


def wanted_names(engine: EngineMetrics) -> set[str]:
    """Returns the names of all metrics to parse on the engine's pages."""
    return {part for source in engine.sources.values() for name in source.names for part in name.split("+")}


def summarize(engine: EngineMetrics, url: str, before: Page, during: Sequence[Page], after: Page, seconds: float,
              failed: int) -> ServerSide:
    """Summarizes the pages. `during` are the pages between; gauges are taken from them, or from the other two if there
    are none."""
    result = ServerSide(engine.name, url, seconds, len(during) + 2, failed)
    for quantity, source in engine.sources.items():
        if quantity in HISTOGRAMS:
            found = _add_distribution(result, quantity, source, before, after)
        elif quantity in COUNTERS:
            found = _add_total(result, quantity, source, before, after)
        else:
            assert quantity in GAUGES
            found = _add_level(result, quantity, source, during or [before, after])
        if found and source.note:
            result.notes[quantity] = source.note
    return result


def _add_distribution(result: ServerSide, quantity: str, source: MetricSource, before: Page, after: Page) -> bool:
    for name in source.names:
        if (new := after.histogram(name)) is None:
            continue
        run = difference(before.histogram(name), new)
        if run is None:
            result.problems.append(f"{name} fell: the server was restarted")
        elif (count := _count(run)) >= 1:
            percentiles = {f"p{100 * q:g}": _ms(bounds(run, q)) for q in QUANTILES}
            result.distributions[quantity] = ScrapedDistribution(round(count), 1e3 * run.total_s / count, percentiles)
        return True
    return False


def _add_total(result: ServerSide, quantity: str, source: MetricSource, before: Page, after: Page) -> bool:
    for names in source.names:
        if (new := after.value(names)) is None:
            continue
        total = new - (before.value(names) or 0.0)  # a series may appear with its first count
        if total < 0:
            result.problems.append(f"{names} fell: the server was restarted")
        else:
            result.totals[quantity] = Total(total, total / result.seconds if result.seconds else 0.0)
        return True
    return False


def _add_level(result: ServerSide, quantity: str, source: MetricSource, pages: Sequence[Page]) -> bool:
    for names in source.names:
        values = [value for page in pages if (value := page.value(names)) is not None]
        if values:
            result.levels[quantity] = GaugeLevel(statistics.fmean(values), max(values))
            return True
    return False


def difference(old: ScrapedHistogram | None, new: ScrapedHistogram) -> ScrapedHistogram | None:
    """Returns the counts between two scrapes; None if counts fell."""
    if old is None:
        return new
    counts = {bound: count - old.counts.get(bound, 0.0) for bound, count in new.counts.items()}
    return None if any(count < 0 for count in counts.values()) else ScrapedHistogram(counts, new.total_s - old.total_s)


def bounds(histogram: ScrapedHistogram, quantile: float) -> tuple[float, float]:
    """Returns the bounds between which the value of nearest rank lies. Needs at least one count."""
    rank = max(math.ceil(quantile * _count(histogram) - 1e-9), 1)
    low = 0.0
    for high, count in histogram.counts.items():
        if count >= rank:
            return low, high
        low = high
    raise ValueError("a histogram without counts has no percentiles")


def _count(histogram: ScrapedHistogram) -> float:
    return max(histogram.counts.values(), default=0.0)


def _ms(pair: tuple[float, float]) -> tuple[float, float | None]:
    return 1e3 * pair[0], 1e3 * pair[1] if math.isfinite(pair[1]) else None
