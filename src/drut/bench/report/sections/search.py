"""A search: what load a server takes, and how it behaves on the way there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drut.bench.compare.figures import FIGURES
from drut.bench.report.estimates import ANSWERS
from drut.bench.report.sections.common import facts, figure_text, interactivity, title_of
from drut.bench.report.sections.section import Axis, Group, Line, Mark, Note, Part, Plot, Section, Table
from drut.bench.report.tables import cell, share
from drut.bench.search.schema import Answer, Point, Search

_ABOUT = {"slo_rate": "the limits are held up to it", "saturation": "served with work always waiting",
          "knee": "from here latency grows faster than throughput"}
_PANELS = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms"))


def section(s: Search, label: str = "") -> Section:
    """The whole of it. `label` tells several apart."""
    by_rate = sorted((p for p in s.points if p.valid and p.rate is not None), key=lambda p: p.rate or 0.0)
    by_users = sorted((p for p in s.points if p.valid and p.rate is None), key=lambda p: p.concurrency or 0)
    marks = sorted(Mark(a.value, ANSWERS[name]) for name in ("knee", "slo_rate")
                   if (a := _answer(s, name)).value is not None)
    parts: list[Part | None] = [
        _answers(s), *_notes(s),
        _curves("Load curves", by_rate, lambda p: p.rate or 0.0, "sessions/s offered", s.target, marks),
        _curves("Load curves, closed loop", by_users, lambda p: p.concurrency or 0, "users", s.target, ()),
        _interactivity(s, [*by_rate, *by_users]), _points(s), facts("Machine", s.environment),
        facts("Settings", s.settings)]
    return Section("search", f"{s.target}: how much load it takes" + (f" ({label})" if label else ""),
                   [part for part in parts if part is not None])


def _answer(s: Search, name: str) -> Answer:
    answer: Answer = getattr(s, name)
    return answer


def _answers(s: Search) -> Table:
    rows = []
    for name in ANSWERS:
        a = _answer(s, name)
        title = f"{ANSWERS[name]}, {'requests/s' if name == 'saturation' else 'sessions/s'}"
        between = "" if a.low is None and a.high is None else f"{cell(a.low)} .. {cell(a.high)}"
        rows.append([title, "not found" if a.value is None else cell(a.value), between, a.why or _ABOUT[name]])
    if s.saturation_tokens_per_s is not None:
        rows.append(["Output at saturation, tokens/s", cell(s.saturation_tokens_per_s), "", ""])
    return Table("What was found", ["", "", "between", ""], rows)


def _notes(s: Search) -> list[Note]:
    notes = []
    if s.ended:
        notes.append(Note("Not over yet." if s.ended == "running" else f"Ended early: {s.ended}.", warning=True))
    if void := [f"{_load(p)}: {'; '.join(p.reasons) or 'no reason given'}" for p in s.points if not p.valid]:
        notes.append(Note(f"{len(void)} of {len(s.points)} runs are void and in no plot:", void, warning=True))
    if s.notes:
        notes.append(Note("Notes:", s.notes))
    return notes


def _load(p: Point) -> str:
    return f"{p.rate:g} /s" if p.rate is not None else f"{p.concurrency} users"


def _curves(title: str, points: Sequence[Point], x: Callable[[Point], float], unit: str, who: str,
            marks: Sequence[Mark]) -> Group | None:
    if not points:
        return None
    plots = []
    for name, stem in _PANELS:
        lines = [line for dash, percent in enumerate(("p50", "p99"))
                 if (line := _line("median" if percent == "p50" else percent, who, points, x,
                                   f"{stem}_{percent}", dash))]
        if lines:
            plots.append(_plot(f"{name} against load", unit, Axis(f"{name}, ms", log=True), lines, marks))
    for figure in ("output_tokens_per_s", "requests_per_s"):
        if line := _line(FIGURES[figure].title, who, points, x, figure, 0):
            plots.append(_plot(f"{FIGURES[figure].title} against load", unit, Axis(title_of(figure)), [line], marks))
    asked = [p for p in points if p.good_share is not None]
    if asked:
        line = Line("within the limits", who, [(x(p), p.good_share or 0.0) for p in asked], marks="all",
                    bars=[(p.good_low or 0.0, 1.0 if p.good_high is None else p.good_high) for p in asked])
        plots.append(_plot("Share within the limits", unit, Axis("share of requests offered", at_most=1.0), [line],
                           marks))
    return Group(title, plots, "Runs of the search, void ones left out. A percentile that falls on failed requests "
                 "has no point.") if plots else None


def _line(name: str, who: str, points: Sequence[Point], x: Callable[[Point], float], figure: str,
          dash: int) -> Line | None:
    known = [(x(p), float(v)) for p in points if isinstance(v := p.figures.get(figure), (int, float))]
    return Line(name, who, known, dash, marks="all") if known else None


def _plot(caption: str, unit: str, y: Axis, lines: Sequence[Line], marks: Sequence[Mark]) -> Plot:
    rows = [[cell(px), line.name, cell(py), *(map(cell, line.bars[i]) if line.bars else ("", ""))]
            for line in lines for i, (px, py) in enumerate(line.points)]
    return Plot(caption, Axis(unit), y, lines, Table(caption, [unit, "", y.title, "low", "high"], rows), marks)


def _interactivity(s: Search, points: Sequence[Point]) -> Group | None:
    plot = interactivity("All loads", {s.target: [(_load(p), p.figures.get("tpot_ms_p50"),
                                                   p.figures.get("output_tokens_per_s")) for p in points]})
    return Group("Throughput against interactivity", [plot], "Up and to the right is better.") if plot else None


def _points(s: Search) -> Table:
    names = [f for f in FIGURES if any(p.figures.get(f) is not None for p in s.points)]
    rows = []
    for p in s.points:
        good = "" if p.good_share is None else f"{share(p.good_share)} [{share(p.good_low)}, {share(p.good_high)}]"
        rows.append([p.phase, _load(p), str(p.offered), good,
                     "" if p.holds is None else "holds" if p.holds else "does not",
                     "valid" if p.valid else "void: " + "; ".join(p.reasons),
                     *(figure_text(f, p.figures.get(f)) for f in names)])
    return Table("All runs", ["phase", "load", "requests", "within the limits", "limits", "", *map(title_of, names)],
                 rows, folded=True)
