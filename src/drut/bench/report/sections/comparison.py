"""The section of a comparison: the contestants, the rankings, and every figure."""

from __future__ import annotations

from collections.abc import Sequence

from drut.bench.compare.names import engine_of
from drut.bench.compare.ranking import places
from drut.bench.compare.schema import Cell, Comparison, Ratio
from drut.bench.cost import amount
from drut.bench.render.section import Facts, Forest, Note, Part, Plot, ReportGroup, ReportRow, Section, Table
from drut.bench.render.tables import cell
from drut.bench.report.estimates import MetricEstimate, of_blocks
from drut.bench.report.sections.common import (
    BY_LOAD,
    LATENCIES,
    OUTCOMES,
    blocks_table,
    commands_table,
    contestants_table,
    cumulative,
    facts,
    failed_of,
    figures_tables,
    gate_table,
    group,
    interactivity,
    load_text,
    timeline,
    title_of,
)
from drut.bench.report.sections.headline import date, machine
from drut.bench.result.figures import FIGURES


def section(c: Comparison, label: str = "") -> Section:
    """Returns the whole section. `label` distinguishes several."""
    names = [x.name for x in c.contestants]
    cells = [x.name for x in c.cells]
    found = of_blocks(c.blocks, cells, names)
    parts: list[Part | None] = [_facts(c), *_notes(c), group("Result", [output_chart(c, found)]), _rankings(c),
                                _ratios(c), contestants_table(c.contestants), gate_table(c.contestants),
                                _interactivity(c, found), _distributions(c, names), _cost(c, found),
                                *figures_tables(found, cells), _timelines(c, names), _cells(c.cells),
                                commands_table(c.contestants), blocks_table(c.blocks),
                                facts("Machine", c.environment), facts("Settings", c.settings), *_appendix(c)]
    return Section("comparison", f"{c.model}: engines side by side" + (f" ({label})" if label else ""),
                   [part for part in parts if part is not None], sorted(names, key=lambda name: name != c.base))


def _notes(c: Comparison) -> list[Note]:
    notes = []
    rounds = max((b.round for b in c.blocks), default=-1) + 1 - min((b.round for b in c.blocks), default=0)
    measured = [x.name for x in c.contestants if x.outcome == "measured"]
    notes.append(Note(f"{len(measured)} of {len(c.contestants)} engines measured with {len(c.cells)} kinds of work, "
                      f"{rounds} rounds, in interleaved blocks. Ratios are to {c.base}; an interval that contains 1, "
                      "or too few rounds, is not ranked."))
    if not c.finished:
        notes.append(Note("Not finished: turns are missing.", warning=True))
    outside = [f"{x.name}: {OUTCOMES[x.outcome]}, {x.why or '; '.join(x.gate.reasons if x.gate else ())}"
               for x in c.contestants if x.outcome != "measured"]
    if outside:
        notes.append(Note("Not ranked:", outside, warning=True))
    return notes


def _facts(c: Comparison) -> Facts:
    versions = "; ".join(engine_of(x) for x in c.contestants if x.outcome == "measured")
    rows = [("Model", c.model), ("Work", ", ".join(x.name for x in c.cells)), ("Engines", versions),
            ("Machine", machine(c.environment)), ("Date", date(c.environment))]
    return Facts([(name, value) for name, value in rows if value])


def output_chart(c: Comparison, found: Sequence[MetricEstimate]) -> Forest | None:
    """Plots output tokens/s of all engines at each kind of work: the result in one chart."""
    rows, lines = [], []
    for x in c.cells:
        for e in found:
            if e.cell == x.name and e.figure == "output_tokens_per_s" and isinstance(e.value, (int, float)):
                low, high = (float(end) if isinstance(end, (int, float)) else float(e.value) for end in (e.low, e.high))
                rows.append(ReportRow(name=e.who, who=e.who, value=float(e.value), low=low, high=high,
                                      text=cell(e.value), heading=x.name))
                lines.append([x.name, e.who, cell(e.value), cell(e.low), cell(e.high)])
    title = title_of("output_tokens_per_s")
    return Forest(f"{c.model}: output tokens/s, more is better", title, rows,
                  Table(title, ["work", "", title, "low", "high"], lines), log=False, bars=True) if rows else None


def _appendix(c: Comparison) -> list[Part]:
    """Returns the notes and the excluded blocks."""
    parts: list[Part] = [Note("Appendix. Notes:", c.notes)] if c.notes else []
    void = [[str(b.round), b.cell, b.contestant, "; ".join(b.reasons) or "no reason given"]
            for b in c.blocks if not b.valid]
    if void:
        parts.append(Table("Appendix: excluded blocks", ["round", "work", "", "reason"], void,
                           f"{len(void)} of {len(c.blocks)} blocks are void and in no figure."))
    return parts


def _ratios(c: Comparison) -> ReportGroup | None:
    plots = []
    for figure in FIGURES:
        mine = [r for r in c.ratios if r.figure == figure]
        if mine:
            plots.append(ratio_forest(figure, f"ratio to {c.base}", [_row(r) for r in mine],
                                      _ratio_table(figure, mine)))
    return group(f"Ratios to {c.base}", plots, "With 95 % intervals over rounds. Level: indistinguishable.")


def _rankings(c: Comparison) -> Table | None:
    """Returns the places; contestants who share one are indistinguishable."""
    places_of: dict[tuple[str, str], str] = {}
    for r in c.rankings:
        place = places(r.groups)
        places_of[r.figure, r.cell] = "; ".join(f"{place[group[0]]}: {', '.join(group)}" for group in r.groups if group)
    cells = [x.name for x in c.cells if any(cell == x.name for _, cell in places_of)]
    rows = [[title_of(figure), *(places_of.get((figure, cell), "") for cell in cells)]
            for figure in FIGURES if any(figure == of for of, _ in places_of)]
    return Table("Ranking", ["places by", *cells], rows, "Contestants that share a place are indistinguishable.") \
        if rows else None


def _row(r: Ratio) -> ReportRow:
    return ReportRow(name=r.contestant, who=r.contestant, value=r.value, low=r.low, high=r.high,
                     text=f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}]", verdict=r.verdict, heading=r.cell)


def ratio_forest(figure: str, x: str, rows: Sequence[ReportRow], twin: Table) -> Forest:
    """Returns the ratios of one figure, with a label for the better side."""
    more = FIGURES[figure].better == "more"
    return Forest(FIGURES[figure].title, x, rows, twin, reference=1.0, left="" if more else "better",
                  right="better" if more else "")


def _ratio_table(figure: str, ratios: Sequence[Ratio]) -> Table:
    rows = [[r.cell, r.contestant, f"{r.value:.3f}", f"{r.low:.3f}", f"{r.high:.3f}", str(r.rounds), r.verdict]
            for r in ratios]
    return Table(f"Ratios, {FIGURES[figure].title}", ["cell", "", "ratio", "low", "high", "rounds", "verdict"], rows)


def _load(x: Cell) -> str:
    return load_text(x.concurrency, x.rate) or "as traced"


def _interactivity(c: Comparison, found: Sequence[MetricEstimate]) -> ReportGroup | None:
    value = {(e.cell, e.who, e.figure): e.value for e in found}
    plots = []
    for work in dict.fromkeys(x.workload for x in c.cells):
        mine = sorted((x for x in c.cells if x.workload == work), key=lambda x: (x.concurrency or 0, x.rate or 0.0))
        by = {y.name: [(_load(x), value.get((x.name, y.name, "tpot_ms_p50")),
                        value.get((x.name, y.name, "output_tokens_per_s"))) for x in mine] for y in c.contestants}
        plots.append(interactivity(work, by))
    return group("Throughput against interactivity", plots, BY_LOAD)


def _distributions(c: Comparison, names: Sequence[str]) -> ReportGroup | None:
    plots = []
    for x in c.cells:
        blocks = [b for b in c.blocks if b.cell == x.name and b.valid]
        for key, title in LATENCIES.items():
            by = {who: [v for b in blocks if b.contestant == who
                        for v in b.samples.get(f"{key}_ms", ())] for who in names}
            failed = {who: sum(failed_of(b) for b in blocks if b.contestant == who) for who in names}
            plots.append(cumulative(f"{title}, {x.name}", f"{title}, ms", by, failed))
    return group("Distributions", plots, "Share of the requests of all valid blocks by maximum latency; failed ones "
                 "never end.")


def _timelines(c: Comparison, names: Sequence[str]) -> ReportGroup | None:
    plots = []
    for x in c.cells:
        runs = {who: [b.timeline for b in c.blocks if b.cell == x.name and b.contestant == who and b.valid]
                for who in names}
        plots.append(timeline(x.name, "output tokens/s", runs))
    return group("Timeline of a block", plots, "Output tokens in each second: blocks faint, their mean above them.")


def _cost(c: Comparison, found: Sequence[MetricEstimate]) -> ReportGroup | None:
    if c.cost_per_hour is None:
        return None
    plots: list[Plot | Forest | None] = []
    for x in c.cells:
        rows, lines = [], []
        for e in found:
            if e.cell == x.name and e.figure == "output_tokens_per_s" and isinstance(e.value, float) and e.value > 0:
                per = c.cost_per_hour / 3600 * 1e6
                low, high = (per / float(v) if isinstance(v, float) and v > 0 else per / e.value
                             for v in (e.high, e.low))
                text = f"{amount(per / e.value)} {c.currency}"
                rows.append(ReportRow(name=e.who, who=e.who, value=per / e.value, low=low, high=high, text=text))
                lines.append([e.who, amount(per / e.value), amount(low), amount(high)])
        if rows:
            twin = Table(f"Cost, {x.name}: {c.currency} per million output tokens", ["", "", "low", "high"], lines)
            plots.append(Forest(x.name, f"{c.currency} per million output tokens", rows, twin, log=False,
                                left="cheaper"))
    return group("Cost", plots, f"{c.currency} per million output tokens, prompts and idle time included, at "
                  f"{cell(c.cost_per_hour)} {c.currency} an hour.")


def _cells(cells: Sequence[Cell]) -> Table:
    return Table("Kinds of work", ["", "workload", "load"], [[x.name, x.workload, _load(x)] for x in cells],
                 folded=True)
