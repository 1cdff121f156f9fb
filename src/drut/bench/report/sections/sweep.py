"""The section of several runs: a sweep over loads with its curves, or other runs next to each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from drut.bench.render.section import (
    ChartAxis,
    Facts,
    Mark,
    Note,
    Part,
    Plot,
    ReportGroup,
    ReportLine,
    Section,
    Table,
    Tile,
    Tiles,
)
from drut.bench.render.tables import cell, share
from drut.bench.report.estimates import estimates
from drut.bench.report.sections import headline
from drut.bench.report.sections.common import BY_LOAD, figure_text, group, interactivity, load_text, title_of
from drut.bench.report.sections.result import distributions, shared_limits
from drut.bench.result.figures import FIGURES
from drut.bench.result.schema import Result
from drut.bench.stats.distribution import Distribution, Figure

_LATENCIES = (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2E", "e2e"))
_SAME = ("model", "url", "workload", "dataset")
_NOT_INTERLEAVED = Note("The runs were not interleaved: changes of the machine between them are part of the "
                        "differences (drut bench compare avoids that).")


class _SweepPoint(NamedTuple):
    load: float
    name: str
    result: Result


def several(results: Sequence[tuple[str, Result]]) -> Section:
    """Compares several runs in one table and in the same plots; runs that differ only in their load, as curves."""
    void = [f"{label}: {'; '.join(r.validity.reasons)}" for label, r in results if not r.validity.valid]
    warning = Note(f"{len(void)} of {len(results)} runs are void. Their figures may not be quoted:", void,
                   warning=True) if void else None
    points = _points([r for _, r in results])
    own: list[Part | None] = [
        _NOT_INTERLEAVED, warning, _table(results), distributions(dict(results)), _interactivity(results)]
    if points:
        own = [_facts(points), warning, _tiles(points), _curves(points), _loads(points),
               distributions({p.name: p.result for p in points}), _NOT_INTERLEAVED]
    settings = results[0][1].settings
    title = f"Sweep of {settings.get('model', '')} at {settings.get('url', '')}" if points else "Several runs"
    return Section("results", title, [part for part in own if part is not None])


def _points(results: Sequence[Result]) -> list[_SweepPoint]:
    """Returns the runs by load; empty if they differ in more than their load, or two have the same one."""
    first = results[0].settings
    points = []
    for r in results:
        users, rate = (r.settings.get(name) for name in ("concurrency", "rate"))
        load = users if users is not None else math.inf if rate == "inf" else rate
        if not isinstance(load, (int, float)) or any(r.settings.get(name) != first.get(name) for name in _SAME):
            return []
        points.append(_SweepPoint(float(load), _load(r), r))
    kinds = {p.result.settings.get("concurrency") is None for p in points}
    distinct = len({p.load for p in points}) == len(points) and len(kinds) == 1
    return sorted(points, key=lambda p: p.load) if distinct else []


def _facts(points: Sequence[_SweepPoint]) -> Facts:
    rows = dict(headline.facts(points[0].result).rows)
    rows["Load"] = ", ".join(p.name for p in points)
    rows["Window"] = f"{points[0].result.summary.window_s:.4g} s each"
    return Facts(list(rows.items()))


def _tiles(points: Sequence[_SweepPoint]) -> Tiles:
    """Returns the highest throughput and goodput, and the highest load up to which all limits hold."""
    found = [_most(points, "Highest throughput", "tokens/s", lambda r: r.summary.output_tokens_per_s),
             _most(points, "Highest goodput", "requests/s", lambda r: r.summary.goodput_per_s)]
    if any(p.result.summary.good_share is not None for p in points):
        held = [p for i, p in enumerate(points)
                if all((q.result.summary.good_share or 0.0) >= headline.ATTAIN for q in points[:i + 1])]
        limit = (f"{share(held[-1].result.summary.good_share)} of requests" if held
                 else f"{share(points[0].result.summary.good_share)} at {points[0].name}")
        found.append(Tile("Highest load within the limits", held[-1].name if held else "none",
                          about=[f"{headline.ATTAIN:.0%} of requests keep the limits up to it"],
                          mark="pass" if held else "fail", limit=limit))
    return Tiles([tile for tile in found if tile is not None])


def _most(points: Sequence[_SweepPoint], title: str, unit: str, of: Callable[[Result], float | None]) -> Tile | None:
    known = [(value, p.name) for p in points if (value := of(p.result)) is not None]
    if not known:
        return None
    value, name = max(known)
    return Tile(title, cell(value), unit, [f"at {name}"])


def _curves(points: Sequence[_SweepPoint]) -> ReportGroup | None:
    who = str(points[0].result.settings.get("model", ""))
    limits = {limit.key: limit.line()._replace(axis="y") for limit in shared_limits([p.result for p in points])}
    plots = [_latency(points, who, title, key, [limits[key]] if key in limits else [])
             for title, key in _LATENCIES]
    return group("Throughput against latency", [*plots, _goodput(points, who)], "A point is a run; its label is the "
                 "load: users, or sessions a second (/s). To the right is more throughput, down is less waiting.")


def _latency(points: Sequence[_SweepPoint], who: str, title: str, key: str, marks: Sequence[Mark]) -> Plot | None:
    lines, rows = [], []
    for dash, percent in enumerate((50, 99)):
        pairs = [(p.name, p.result.summary.output_tokens_per_s, _percentile(p.result, key, percent)) for p in points]
        known = [(name, float(x), float(y)) for name, x, y in pairs
                 if isinstance(x, (int, float)) and isinstance(y, (int, float))]
        if known:
            names = [name for name, _, _ in known] if percent == 50 else []
            lines.append(ReportLine("median" if percent == 50 else f"p{percent}", who, [(x, y) for _, x, y in known],
                                    dash, marks="all", names=names))
            rows += [[name, f"p{percent}", cell(x), cell(y)] for name, x, y in known]
    twin = Table(f"{title} against throughput", ["load", "", "output tokens/s", f"{title}, ms"], rows)
    return Plot(title, ChartAxis("output tokens/s"), ChartAxis(f"{title}, ms", log=True), lines, twin,
                marks=marks) if lines else None


def _goodput(points: Sequence[_SweepPoint], who: str) -> Plot | None:
    closed = points[0].result.settings.get("concurrency") is not None
    x = "users" if closed else "sessions/s offered"
    finite = [p for p in points if math.isfinite(p.load)]
    served = [(p.load, p.result.summary.requests_per_s) for p in finite]
    good = [(p.load, rate) for p in finite if (rate := p.result.summary.goodput_per_s) is not None]
    lines = [ReportLine("served", who, served, marks="all")]
    lines += [ReportLine("within the limits", who, good, 1, marks="all")] if good else []
    rows = [[cell(px), line.name, cell(py)] for line in lines for px, py in line.points]
    return Plot("Requests by load", ChartAxis(x), ChartAxis("requests/s"), lines,
                Table("Requests by load", [x, "", "requests/s"], rows)) if len(finite) > 1 else None


def _percentile(r: Result, key: str, percent: int) -> Figure:
    d: Distribution = getattr(r.summary, f"{key}_ms")
    return d.p50 if percent == 50 else d.p99


def _loads(points: Sequence[_SweepPoint]) -> Table:
    rows = []
    for p in points:
        s = p.result.summary
        rows.append([p.name, cell(s.output_tokens_per_s), cell(s.goodput_per_s), share(s.good_share), *(
            cell(_percentile(p.result, key, percent)) for _, key in _LATENCIES for percent in (50, 99)),
            str(s.errors.failed), "valid" if p.result.validity.valid else "void"])
    heads = [f"{title} {percent}, ms" for title, _ in _LATENCIES for percent in ("p50", "p99")]
    return Table("All loads", ["load", "output, tokens/s", "goodput, 1/s", "within the limits", *heads, "failed", ""],
                 rows)


def _table(results: Sequence[tuple[str, Result]]) -> Table:
    by = {label: {e.figure: e for e in estimates(r)} for label, r in results}
    rows = [[title_of(f), *(figure_text(f, found[f].value) if f in found else "n/a" for found in by.values())]
            for f in FIGURES if any(f in found for found in by.values())]
    return Table("All runs", ["", *by], rows)


def _interactivity(results: Sequence[tuple[str, Result]]) -> ReportGroup | None:
    plot = interactivity("All runs", {
        label: [(_load(r), r.summary.tpot_ms.p50, r.summary.output_tokens_per_s)] for label, r in results})
    return group("Throughput against interactivity", [plot], BY_LOAD)


def _load(r: Result) -> str:
    users, rate = (r.settings.get(name) for name in ("concurrency", "rate"))
    return load_text(users, rate if isinstance(rate, (int, float, str)) else None)
