"""Plots of the two sides of a technique, off and on: their rounds and their requests."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from drut.bench.ablate.schema import Ablation, Effect, Technique
from drut.bench.compare.verdicts import figures_of
from drut.bench.render.section import Forest, Plot, ReportRow, Table
from drut.bench.report.sections.common import LATENCIES, cumulative, failed_of, figure_text, title_of
from drut.bench.result.figures import FIGURES

SIDES = ("off", "on")


def rounds_forest(a: Ablation, t: Technique, figure: str, effects: Sequence[Effect]) -> Forest | None:
    """Plots a dot for each round of each side; rounds without both sides are omitted, because no ratio uses them. None
    if the file has none."""
    rows, lines = [], []
    for e in effects:
        found = figures_of(a.blocks, e.cell, figure)
        off, on = (found.get(f"{t.name}/{side}", {}) for side in SIDES)
        both = sorted(off.keys() & on.keys())
        for side, values in zip(SIDES, (off, on), strict=True):
            if dots := [values[r] for r in both]:
                ends = median(dots), min(dots), max(dots)
                shown = [figure_text(figure, v) for v in ends]
                rows.append(ReportRow(side, side, *ends, f"{shown[0]} ({shown[1]} .. {shown[2]})", heading=e.cell,
                                      dots=dots))
                lines.append([e.cell, side, *shown, ", ".join(figure_text(figure, v) for v in dots)])
    if not rows:
        return None
    title = title_of(figure)
    head = ["work", "", "median", "least", "most", "rounds, in their order"]
    return Forest(f"{FIGURES[figure].title}, each round", title, rows,
                  Table(f"{t.title}: {title}, by round", head, lines))


def distributions(a: Ablation, t: Technique, effects: Sequence[Effect]) -> list[Plot | None]:
    """Plots the requests of all valid blocks, off and on: for each kind of work the latencies that are judged there."""
    plots = []
    for cell in dict.fromkeys(e.cell for e in effects):
        judged = {e.figure.partition("_ms_")[0] for e in effects if e.cell == cell}
        for key in [key for key in LATENCIES if key in judged]:
            blocks = {side: [b for b in a.blocks if b.valid and b.cell == cell and b.contestant == f"{t.name}/{side}"]
                      for side in SIDES}
            plots.append(cumulative(f"{LATENCIES[key]} of requests, {cell}", f"{LATENCIES[key]}, ms",
                                    {side: [v for b in mine for v in b.samples.get(f"{key}_ms", ())]
                                     for side, mine in blocks.items()},
                                    {side: sum(map(failed_of, mine)) for side, mine in blocks.items()}))
    return plots
