"""The section of an ablation: the effect of each technique where it should help, and where it should not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from drut.bench.ablate.schema import Ablation, Effect, Technique
from drut.bench.ablate.words import SHORT, as_expected, found
from drut.bench.render.section import Forest, Note, Part, Plot, ReportGroup, ReportRow, Section, Table
from drut.bench.report.estimates import of_blocks
from drut.bench.report.sections.common import (
    OUTCOMES,
    blocks_table,
    commands_table,
    contestants_table,
    facts,
    figure_text,
    figures_tables,
    title_of,
    void_points,
)
from drut.bench.report.sections.comparison import ratio_forest
from drut.bench.report.sections.sides import SIDES, distributions, rounds_forest
from drut.bench.result.figures import FIGURES


def section(a: Ablation, label: str = "") -> Section:
    """Returns the whole section. `label` distinguishes several."""
    cells = [x.name for x in a.cells]
    values = of_blocks(a.blocks, cells, [x.name for x in a.contestants])
    measured = [t for t in a.techniques if any(e.technique == t.name for e in a.effects)]
    parts: list[Part | None] = [*_notes(a, measured), _effects(a, a.effects),
                                *(_technique(a, t) for t in a.techniques), contestants_table(a.contestants),
                                *figures_tables(values, cells, folded=True), _switches(a),
                                commands_table(a.contestants), blocks_table(a.blocks),
                                facts("Machine", a.environment), facts("Settings", a.settings)]
    return Section("ablation", f"{a.model}: what each technique buys" + (f" ({label})" if label else ""),
                   [part for part in parts if part is not None], ["on / off", *SIDES])


def _notes(a: Ablation, measured: Sequence[Technique]) -> list[Note]:
    notes = [Note(f"{len(measured)} of {len(a.techniques)} techniques measured. Ratios are on over off, each with a "
                  "95 % interval over rounds. An interval that contains 1 shows no effect; no relevant effect "
                  "(under 10 %) is shown only if it lies within 10 % of 1. In addition, each round that both sides "
                  "have is a mark, with a vertical line at the median; the requests of all valid blocks are below.")]
    if void := void_points(a.blocks):
        notes.append(Note(f"{len(void)} of {len(a.blocks)} blocks are void and in no figure:", void, warning=True))
    if lost := [f"{c.name}: {OUTCOMES[c.outcome]}, {c.why}" for c in a.contestants if c.outcome != "measured"]:
        notes.append(Note("Not measured:", lost, warning=True))
    if a.notes:
        notes.append(Note("Notes:", a.notes))
    return notes


def _effects(a: Ablation, effects: Sequence[Effect]) -> Table | None:
    titles = {t.name: t.title for t in a.techniques}
    rows = [[titles.get(e.technique, e.technique), e.cell, _title(e.figure), _value(e, e.off), _value(e, e.on),
             f"{e.ratio:.3f} [{e.low:.3f}, {e.high:.3f}]", str(e.rounds), e.expected, SHORT[found(e)], as_expected(e)]
            for e in effects]
    head = ["technique", "work", "figure", "off", "on", "on / off", "rounds", "expected", "found", ""]
    return Table("All effects", head, rows, "Off and on: medians over rounds. On / off: the geometric mean of the "
                 "rounds' ratios.") if rows else None


def _technique(a: Ablation, t: Technique) -> ReportGroup | None:
    """Returns each judged figure as ratios and as rounds, then the requests of each kind of work."""
    mine = [e for e in a.effects if e.technique == t.name]
    plots: list[Plot | Forest | None] = []
    for figure in FIGURES:
        if of := [e for e in mine if e.figure == figure]:
            plots += [_ratios(t, figure, of), rounds_forest(a, t, figure, of)]
    text = " ".join(part for part in (t.about, t.shows) if part)
    there = [plot for plot in [*plots, *distributions(a, t, mine)] if plot is not None]
    return ReportGroup(t.title, there, text) if there or text else None


def _ratios(t: Technique, figure: str, effects: Sequence[Effect]) -> Forest:
    rows = [ReportRow(name="on / off", who="on / off", value=e.ratio, low=e.low, high=e.high,
                      text=f"{e.ratio:.2f} [{e.low:.2f}, {e.high:.2f}]", verdict=_found(e),
                      heading=e.cell) for e in effects]
    twin = Table(f"{t.title}: {title_of(figure)}", ["work", "off", "on", "on / off", "found"],
                 [[e.cell, _value(e, e.off), _value(e, e.on), f"{e.ratio:.3f}", SHORT[found(e)]] for e in effects])
    return ratio_forest(figure, "on / off", rows, twin)


def _found(e: Effect) -> str:
    return SHORT[found(e)] + (f", expected: {e.expected}" if as_expected(e) == "not as expected" else "")


def _switches(a: Ablation) -> Table | None:
    rows = [[t.title, shlex.join(t.on) or "as it is", shlex.join(t.off) or "as it is"] for t in a.techniques]
    return Table("What was switched", ["technique", "on", "off"], rows, folded=True) if rows else None


def _title(figure: str) -> str:
    return title_of(figure) if figure in FIGURES else figure


def _value(e: Effect, value: float) -> str:
    return figure_text(e.figure, value) if e.figure in FIGURES else f"{value:.4g}"
