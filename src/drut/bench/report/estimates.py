"""Every figure of a file with its interval: the data of tables, the CSV and `drut bench diff`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from drut.bench.ablate.schema import Ablation
from drut.bench.compare.enough import supported
from drut.bench.compare.schema import Block, Comparison
from drut.bench.report.documents import Document
from drut.bench.result.figures import FIGURES
from drut.bench.result.schema import Result
from drut.bench.search.schema import Point, Search, SearchAnswer
from drut.bench.stats.distribution import Figure
from drut.bench.stats.proportion import wilson
from drut.bench.stats.quantiles import CONFIDENCE, normal
from drut.bench.stats.rounds import over_rounds

ANSWERS = {"slo_rate": "Highest rate that holds the limits", "saturation": "Saturation", "knee": "Knee"}


class MetricEstimate(msgspec.Struct, frozen=True):
    """One figure. `cell` and `who` are empty if a file has only one. `of` "ratio": over a base, or on over off.

    `low` and `high` are bounds at 95 % confidence, None if there is no interval; `draws` is the number of rounds or
    blocks behind them, 0 for bounds that are not due to chance (a bracket of a search).
    """

    cell: str
    who: str
    figure: str
    of: Literal["value", "ratio", "answer"]
    unit: str
    better: Literal["more", "less"]
    value: Figure
    low: Figure = None
    high: Figure = None
    draws: int = 0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Returns the part that identifies the figure in another file."""
        return self.of, self.cell, self.who, self.figure


def estimates(document: Document) -> list[MetricEstimate]:
    """Returns the figures of a file of any kind."""
    if isinstance(document, Result):
        return _of_result(document)
    if isinstance(document, Search):
        return _of_search(document)
    names = [c.name for c in document.contestants]
    found = of_blocks(document.blocks, [c.name for c in document.cells], names)
    return [*found, *(_ratios(document) if isinstance(document, Comparison) else _effects(document))]


def of_blocks(blocks: Sequence[Block], cells: Iterable[str], contestants: Sequence[str]) -> list[MetricEstimate]:
    """Returns the figures over the rounds of each contestant in each cell, without void blocks."""
    by: dict[tuple[str, str], list[Block]] = {}
    for block in blocks:
        if block.valid:
            by.setdefault((block.cell, block.contestant), []).append(block)
    found = []
    for cell in cells:
        for who in contestants:
            for name, kind in FIGURES.items():
                values = [supported(b, name) for b in by.get((cell, who), ())]
                known = [v for v in values if v is not None]
                if known:
                    value, low, high = over_rounds(known, logarithmic=kind.unit != "share")
                    found.append(MetricEstimate(cell=cell, who=who, figure=name, of="value", unit=kind.unit,
                                                better=kind.better, value=value, low=low, high=high, draws=len(known)))
    return found


def _of_result(result: Result) -> list[MetricEstimate]:
    found = []
    for name, kind in FIGURES.items():
        value, interval = kind.of(result), result.intervals.figures.get(name)
        if value is not None:
            low, high, draws = (interval.low, interval.high, result.intervals.blocks) if interval else (None, None, 0)
            if name == "error_rate":
                errors = result.summary.errors
                low, high, draws = *wilson_95(errors.failed / errors.offered, errors.offered), errors.offered
            found.append(MetricEstimate(cell="", who="", figure=name, of="value", unit=kind.unit, better=kind.better,
                                        value=value, low=low, high=high, draws=draws))
    return found


def wilson_95(share: float, n: float) -> tuple[float, float]:
    """Returns the interval of a share of `n` independent requests."""
    return wilson(share, n, normal((1 + CONFIDENCE) / 2))


def _of_search(search: Search) -> list[MetricEstimate]:
    found = []
    for name in ANSWERS:
        answer = answer_of(search, name)
        if answer.value is not None:
            found.append(MetricEstimate(cell="", who="", figure=name, of="answer", unit="1/s", better="more",
                                        value=answer.value, low=answer.low, high=answer.high))
    if search.saturation_tokens_per_s is not None:
        output = FIGURES["output_tokens_per_s"]
        found.append(MetricEstimate(cell="saturation", who="", figure="output_tokens_per_s", of="answer",
                                    unit=output.unit,
                                    better=output.better, value=search.saturation_tokens_per_s))
    at: dict[str, list[Point]] = {}
    for point in search.points:
        if point.phase in ("curve", "saturate") and point.valid:
            at.setdefault(load_key(point), []).append(point)
    for cell, points in at.items():
        for name, kind in FIGURES.items():
            values = [v for p in points if (v := p.figures.get(name)) is not None]
            if values:  # several runs at one load, one of them chosen as the best, have a mean and no interval
                found.append(MetricEstimate(cell=cell, who="", figure=name, of="value", unit=kind.unit,
                                            better=kind.better,
                                            value=over_rounds(values, logarithmic=False)[0]))
    return found


def answer_of(search: Search, name: str) -> SearchAnswer:
    """Returns one of ANSWERS."""
    answer: SearchAnswer = getattr(search, name)
    return answer


def load_key(point: Point) -> str:
    """Returns a run's load, formatted as in the names of cells."""
    return f"rate {point.rate:g}" if point.rate is not None else f"concurrency {point.concurrency}"


def _ratios(comparison: Comparison) -> list[MetricEstimate]:
    return [MetricEstimate(cell=r.cell, who=f"{r.contestant} / {r.base}", figure=r.figure, of="ratio", unit="",
                           better=FIGURES[r.figure].better, value=r.value, low=r.low, high=r.high,
                           draws=r.rounds) for r in comparison.ratios if r.figure in FIGURES]


def _effects(ablation: Ablation) -> list[MetricEstimate]:
    return [MetricEstimate(cell=e.cell, who=f"{e.technique}: on / off", figure=e.figure, of="ratio", unit="",
                           better=FIGURES[e.figure].better, value=e.ratio, low=e.low, high=e.high,
                           draws=e.rounds) for e in ablation.effects if e.figure in FIGURES]
