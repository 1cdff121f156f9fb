"""The section of a search: the load that a server takes, and its behaviour on the way there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from drut.bench.render.section import ChartAxis, Mark, Note, Part, Plot, ReportGroup, ReportLine, Section, Table
from drut.bench.render.tables import cell, share
from drut.bench.report.estimates import ANSWERS, answer_of, wilson_95
from drut.bench.report.sections.common import (
    BY_LOAD,
    facts,
    figure_text,
    group,
    interactivity,
    load_text,
    title_of,
)
from drut.bench.result.figures import FIGURES
from drut.bench.search.schema import Point, Search

_ABOUT = {"slo_rate": "the limits are held up to it", "saturation": "served with work always waiting",
          "knee": "latency grows faster than throughput from here"}
_PANELS = (("TTFT", "ttft_ms"), ("TPOT", "tpot_ms"), ("E2E", "e2e_ms"))
_SERVED = "requests served a second"


class _Loads(NamedTuple):
    """Runs of one kind of load, with the results marked on its axis."""

    title: str
    against: str
    axis: ChartAxis
    x: Callable[[Point], float]
    points: Sequence[Point]
    marks: Sequence[Mark]

    def levels(self) -> list[tuple[float, list[Point]]]:
        """Returns the runs at each load, ascending."""
        at: dict[float, list[Point]] = {}
        for point in sorted(self.points, key=self.x):
            at.setdefault(self.x(point), []).append(point)
        return list(at.items())


def section(s: Search, label: str = "") -> Section:
    """Returns the whole section. `label` distinguishes several."""
    valid = [p for p in s.points if p.valid]
    by_rate = _Loads(title="Open loop", against="against rate", axis=ChartAxis("sessions/s offered"),
                     x=lambda p: p.rate or 0.0, points=[p for p in valid if p.rate is not None], marks=_rates(s))
    by_users = _Loads(title="Closed loop", against="against users",
                      axis=ChartAxis("users, each with one request at a time", log=True),
                      x=lambda p: p.concurrency or 1,
                      points=[p for p in valid if p.rate is None], marks=())
    parts: list[Part | None] = [
        _answers(s), *_notes(s), _curves(s, by_rate), _curves(s, by_users), _interactivity(s, (by_rate, by_users)),
        _points(s), facts("Machine", s.environment), facts("Settings", s.settings)]
    return Section("search", f"Load test of {s.target}" + (f" ({label})" if label else ""),
                   [part for part in parts if part is not None])


def _answers(s: Search) -> Table:
    rows = []
    for name in ANSWERS:
        a = answer_of(s, name)
        title = f"{ANSWERS[name]}, {'requests/s' if name == 'saturation' else 'sessions/s'}"
        between = "" if a.low is None and a.high is None else f"{cell(a.low)} .. {cell(a.high)}"
        rows.append([title, "not found" if a.value is None else cell(a.value), between, a.why or _ABOUT[name]])
    if s.saturation_tokens_per_s is not None:
        rows.append(["Output at saturation, tokens/s", cell(s.saturation_tokens_per_s), "", ""])
    return Table("Results", ["", "", "between", ""], rows)


def _notes(s: Search) -> list[Note]:
    notes = []
    if s.ended:
        notes.append(Note("Not finished." if s.ended == "running" else f"Ended early: {s.ended}.", warning=True))
    if void := [f"{_load(p)}: {'; '.join(p.reasons) or 'no reason given'}" for p in s.points if not p.valid]:
        notes.append(Note(f"{len(void)} of {len(s.points)} runs are void and in no plot:", void, warning=True))
    if s.notes:
        notes.append(Note("Notes:", s.notes))
    return notes


def _load(p: Point) -> str:
    return load_text(p.concurrency, p.rate)


def _rates(s: Search) -> list[Mark]:
    """Returns the results in sessions a second. The saturation is in requests; its position here is known only if the
    file states the number of requests of a session."""
    marks = [m for name in ("knee", "slo_rate") if (m := _mark(s, name)) is not None]
    if s.turns is not None and s.turns > 0 and (most := _mark(s, "saturation")) is not None:
        low, high = most.ends
        marks.append(Mark(most.at / s.turns, most.name, low / s.turns, high / s.turns))
    return marks


def _mark(s: Search, name: str) -> Mark | None:
    a = answer_of(s, name)
    return None if a.value is None else Mark(a.value, ANSWERS[name], a.low, a.high)


def _curves(s: Search, loads: _Loads) -> ReportGroup | None:
    plots = []
    for name, stem in _PANELS:
        lines = [line for dash, (title, percent) in enumerate((("median", "p50"), ("p99", "p99")))
                 if (line := _line(title, s.target, loads, f"{stem}_{percent}", dash)) is not None]
        plots.append(_plot(f"{name} {loads.against}", loads, ChartAxis(f"{name}, ms", log=True), lines))
    plots += [_tokens(s, loads), _served(s, loads), _good(s, loads)]
    return group(f"Load curves, {loads.title.lower()}", plots,
                 "Runs of the search, void ones left out; several at one load are shown as their mean, minimum and "
                 "maximum. A percentile that falls on failed requests has no point. Dotted: results; shaded: their "
                 "brackets.")


def _tokens(s: Search, loads: _Loads) -> Plot | None:
    most = [] if s.saturation_tokens_per_s is None else [Mark(s.saturation_tokens_per_s, ANSWERS["saturation"],
                                                              axis="y")]
    line = _line("output", s.target, loads, "output_tokens_per_s")
    return _plot(f"Output {loads.against}", loads, ChartAxis(title_of("output_tokens_per_s")), [line], most)


def _served(s: Search, loads: _Loads) -> Plot | None:
    """Plots the requests completed a second, with the saturation, which is computed from this figure; for files without
    it, the requests that ended a second."""
    most = _mark(s, "saturation")
    figure = "served_per_s" if any(p.served_per_s is not None for p in loads.points) else "requests_per_s"
    line = _line("requests", s.target, loads, figure)
    return _plot(f"Requests {loads.against}", loads, ChartAxis(_SERVED), [line],
                 [] if most is None else [most._replace(axis="y")])


def _good(s: Search, loads: _Loads) -> Plot | None:
    points, bars = [], []
    for x, runs in loads.levels():
        if asked := [p for p in runs if p.good_share is not None]:
            points.append((x, _share(asked)[0]))
            bars.append(_share(asked)[1:])
    line = ReportLine("within the limits", s.target, points, marks="all", bars=bars) if points else None
    return _plot(f"Share within the limits {loads.against}", loads, ChartAxis("share of requests offered", at_most=1.0),
                 [line])


def _share(runs: Sequence[Point]) -> tuple[float, float, float]:
    """Returns the share over all requests of the runs, with its 95 % interval; for a single run, the interval in the
    file."""
    if len(runs) == 1:
        p = runs[0]
        return p.good_share or 0.0, p.good_low or 0.0, 1.0 if p.good_high is None else p.good_high
    good = sum((p.good_share or 0.0) * p.offered for p in runs) / max(sum(p.offered for p in runs), 1)
    worth = sum(p.offered if p.effective is None else p.effective for p in runs)
    return good, *wilson_95(good, max(worth, 1.0))


def _line(name: str, who: str, loads: _Loads, figure: str, dash: int = 0) -> ReportLine | None:
    points, bars = [], []
    for x, runs in loads.levels():
        if known := _known(runs, figure):
            points.append((x, fmean(known)))
            bars.append((min(known), max(known)))
    repeated = any(low < high for low, high in bars)
    return ReportLine(name, who, points, dash, marks="all", bars=bars if repeated else ()) if points else None


def _known(runs: Sequence[Point], figure: str) -> list[float]:
    values = [p.served_per_s if figure == "served_per_s" else p.figures.get(figure) for p in runs]
    return [float(v) for v in values if isinstance(v, (int, float))]


def _mean(runs: Sequence[Point], figure: str) -> float | None:
    known = _known(runs, figure)
    return fmean(known) if known else None


def _plot(caption: str, loads: _Loads, y: ChartAxis, lines: Iterable[ReportLine | None],
          marks: Sequence[Mark] = ()) -> Plot | None:
    there = [line for line in lines if line is not None]
    rows = [[cell(px), line.name, cell(py), *(map(cell, line.bars[i]) if line.bars else ("", ""))]
            for line in there for i, (px, py) in enumerate(line.points)]
    table = Table(caption, [loads.axis.title, "", y.title, "low", "high"], rows)
    return Plot(caption=caption, x=loads.axis, y=y, lines=there, twin=table,
                marks=[*loads.marks, *marks]) if there else None


def _interactivity(s: Search, kinds: Iterable[_Loads]) -> ReportGroup | None:
    plots = []
    for loads in kinds:
        points = [(_load(runs[0]), _mean(runs, "tpot_ms_p50"), _mean(runs, "output_tokens_per_s"))
                  for _, runs in loads.levels()]
        plots.append(interactivity(loads.title, {s.target: points}))
    return group("Throughput against interactivity", plots, BY_LOAD)


def _points(s: Search) -> Table:
    names = [f for f in FIGURES if any(p.figures.get(f) is not None for p in s.points)]
    rows = []
    for p in s.points:
        good = "" if p.good_share is None else f"{share(p.good_share)} [{share(p.good_low)}, {share(p.good_high)}]"
        rows.append([p.phase, _load(p), str(p.offered), good,
                     "" if p.holds is None else "holds" if p.holds else "does not",
                     "valid" if p.valid else "void: " + "; ".join(p.reasons), p.steady, cell(p.served_per_s),
                     cell(p.e2e_ms_mean), *(figure_text(f, p.figures.get(f)) for f in names)])
    return Table("All runs", ["phase", "load", "requests", "within the limits", "limits", "", "state", _SERVED,
                              "E2E, mean, ms", *map(title_of, names)], rows, folded=True)
