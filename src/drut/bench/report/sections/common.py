"""Plots and tables that several kinds of file share."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from drut.bench.compare.enough import supported
from drut.bench.compare.gates import gsm8k_meaningful, perplexity
from drut.bench.compare.schema import Block, Contestant
from drut.bench.render.section import ChartAxis, Forest, Mark, Plot, ReportGroup, ReportLine, Table
from drut.bench.render.tables import cell, share
from drut.bench.report.estimates import MetricEstimate
from drut.bench.result.figures import FIGURES
from drut.bench.stats.distribution import Figure

LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}
_TWIN_PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99, 100)
_MAX_POINTS, _MAX_SECONDS, _MAX = 120, 240, 1e15
MIN_MS = 1e-3
BY_LOAD = "Up and to the right is better. The label of a point is its load: users, or sessions a second (/s)."
OUTCOMES = {"measured": "measured", "failed": "failed", "cannot run": "cannot run", "gate": "failed the gate"}


def title_of(figure: str) -> str:
    """Returns the title with its unit."""
    kind = FIGURES[figure]
    return kind.title if kind.unit in ("", "share") else f"{kind.title}, {kind.unit}"


def figure_text(figure: str, value: Figure) -> str:
    """Formats a value of FIGURES."""
    if FIGURES[figure].unit == "share" and isinstance(value, (int, float)):
        return share(float(value))
    return cell(value)


def with_interval(e: MetricEstimate | None) -> str:
    """Formats `value [low, high]`, or the value alone."""
    if e is None:
        return "n/a"
    value = figure_text(e.figure, e.value)
    return value if e.low is None else f"{value} [{figure_text(e.figure, e.low)}, {figure_text(e.figure, e.high)}]"


def cumulative(caption: str, title: str, samples: Mapping[str, Sequence[float]],
               failed: Mapping[str, int] | None = None, *, of: str = "requests",
               marks: Sequence[Mark] = ()) -> Plot | None:
    """Plots the share of requests (`of`: or of something else) by maximum latency; failed requests have none, so the
    line ends below 1. `samples` are milliseconds, in any order; None if there are none."""
    lines, rows = [], []
    for who, values in samples.items():
        if not len(values):
            continue
        ascending = np.maximum(np.sort(np.asarray(values, np.float64)), MIN_MS)
        lost = (failed or {}).get(who, 0)
        n = len(ascending) + lost
        at = np.unique(np.linspace(0, len(ascending) - 1, min(len(ascending), _MAX_POINTS)).astype(int))
        lines.append(ReportLine(who, who, [(float(ascending[i]), float(i + 1) / n) for i in at],
                                marks="middle" if len(samples) > 1 else "none"))
        ranks = [max(-(-p * n // 100), 1) - 1 for p in _TWIN_PERCENTS]
        rows.append([who, str(n), *(cell(float(ascending[r])) if r < len(ascending) else "failed" for r in ranks)])
    if not lines:
        return None
    head = ["", "n", *(f"p{p}" if p < 100 else "most" for p in _TWIN_PERCENTS)]
    return Plot(caption, ChartAxis(title, log=True), ChartAxis(f"share of {of}", at_most=1.0), lines,
                Table(f"{caption}: percentiles, ms", head, rows), marks=marks)


def timeline(caption: str, unit: str, runs: Mapping[str, Sequence[Sequence[float]]]) -> Plot | None:
    """Plots a value by second: each run faint if there are several, and their mean."""
    lines, columns = [], []
    for who, series in runs.items():
        bounded = [np.clip(s, 0, _MAX) for s in series if s]
        if not bounded:
            continue
        length = min(map(len, bounded))
        mean = np.mean([s[:length] for s in bounded], axis=0)
        if len(bounded) > 1:
            lines += [ReportLine(who, who, _thin(s), faint=True) for s in bounded]
        lines.append(ReportLine(who, who, _thin(mean), marks="middle" if len(runs) > 1 else "none"))
        columns.append((who, dict(_thin(mean, 60))))
    if not lines:
        return None
    seconds = sorted({s for _, column in columns for s in column})
    rows = [[f"{s:g}", *(cell(column.get(s)) for _, column in columns)] for s in seconds]
    return Plot(caption, ChartAxis("s"), ChartAxis(unit), lines,
                Table(f"{caption}, {unit}", ["s", *(w for w, _ in columns)],
                                                            rows))


def _thin(values: np.ndarray, most: int = _MAX_SECONDS) -> list[tuple[float, float]]:
    """Returns points in the middle of their seconds; neighbours are averaged if there are more than `most`."""
    step = max(math.ceil(len(values) / most), 1)
    return [(i + min(step, len(values) - i) / 2, float(np.mean(values[i:i + step])))
            for i in range(0, len(values), step)]


def interactivity(caption: str, by: Mapping[str, Sequence[tuple[str, Figure, Figure]]]) -> Plot | None:
    """Plots the machine's tokens a second by a user's (1 over the median TPOT). `by` contestant: the load, the median
    TPOT in ms, and output tokens/s."""
    lines, rows = [], []
    for who, points in by.items():
        known = [(name, 1e3 / tpot, float(rate)) for name, tpot, rate in points
                 if isinstance(tpot, (int, float)) and isinstance(rate, (int, float)) and tpot > MIN_MS]
        if known:
            lines.append(ReportLine(who, who, [(x, y) for _, x, y in known], marks="all",
                                    names=[n for n, _, _ in known]))
            rows += [[who, name, cell(x), cell(y)] for name, x, y in known]
    if not lines:
        return None
    head = ["", "load", "tokens/s per user", "tokens/s of the machine"]
    return Plot(caption, ChartAxis("tokens/s per user"), ChartAxis("output tokens/s of the machine"), lines,
                Table(caption, head, rows))


def group(title: str, plots: Iterable[Plot | Forest | None], text: str = "") -> ReportGroup | None:
    """Returns a group, None if there is no plot."""
    there = [plot for plot in plots if plot is not None]
    return ReportGroup(title, there, text) if there else None


def load_text(concurrency: int | None, rate: float | str | None) -> str:
    """Describes a load; empty if it is unknown. A rate of "inf" sends all requests at once."""
    if concurrency is not None:
        return f"{concurrency} user{'s' if concurrency != 1 else ''}"
    if isinstance(rate, str):
        return "all at once" if rate == "inf" else ""
    return "" if rate is None else f"{rate:.4g} /s"


def facts(caption: str, values: Mapping[str, Any], *, folded: bool = True) -> Table | None:
    """Returns a table of names and values; values that are not text are shown as JSON."""
    rows = [[str(name), value if isinstance(value, str) else msgspec.json.encode(value).decode()]
            for name, value in values.items() if value is not None]
    return Table(caption, ["", ""], rows, folded=folded) if rows else None


def contestants_table(contestants: Sequence[Contestant]) -> Table:
    """Returns a table of the contestants and their outcomes."""
    rows = []
    for c in contestants:
        why = "; ".join([c.why] * bool(c.why) + list(c.remarks))
        rows.append([c.name, c.title, OUTCOMES[c.outcome], c.weights, "yes" if c.verified else "not verified",
                     cell(c.ready_s), cell(c.ready_mb), cell(c.peak_mb), why])
    return Table("Contestants", ["", "engine", "outcome", "weights", "verified", "start, s", "memory when ready, MB",
                                   "peak memory, MB", "why, remarks"], rows,
                 "Verified: it was seen to run; otherwise only its command line was tested.")


def commands_table(contestants: Sequence[Contestant]) -> Table | None:
    """Returns the commands that started the contestants."""
    rows = [[c.name, ", ".join(f"{k} {v}" for k, v in c.versions.items()), shlex.join(c.command)]
            for c in contestants if c.versions or c.command]
    return Table("Versions and commands", ["", "versions", "command"], rows, folded=True) if rows else None


def gate_table(contestants: Sequence[Contestant]) -> Table | None:
    """Returns the results of the gate."""
    gates = [(c.name, c.gate) for c in contestants if c.gate is not None]
    shares = {"agreement": "greedy agreement", "gsm8k": "GSM8K", "schema_valid": "valid by schema",
              "lengths_exact": "exact lengths"}
    if not gsm8k_meaningful(gate for _, gate in gates):
        del shares["gsm8k"]
    rows = []
    for who, g in gates:
        parts = [share(v) + (f" of {g.asked[name]}" if name in g.asked else "") if v is not None else "not asked"
                 for name in shares for v in [getattr(g, name)]]
        rows.append([who, "passed" if g.passed else "not passed", *parts, perplexity(g),
                     cell(g.divergence) or "n/a", ", ".join(g.judged_on), "; ".join(g.reasons)])
    head = ["", "gate", *shares.values(), "perplexity", "divergence, nats", "judged on", "reasons"]
    return Table("Quality gate", head, rows) if rows else None


def figures_tables(found: Sequence[MetricEstimate], cells: Sequence[str], *, folded: bool = False) -> list[Table]:
    """Returns one table for each cell: contestants by figures, mean over rounds with interval."""
    tables = []
    for name in cells:
        mine = [e for e in found if e.cell == name and e.of == "value"]
        engines, figures = list(dict.fromkeys(e.who for e in mine)), [f for f in FIGURES if any(e.figure == f
                                                                                             for e in mine)]
        by = {(e.who, e.figure): e for e in mine}
        rows = [[title_of(f), *(with_interval(by.get((who, f))) for who in engines)] for f in figures]
        if rows:
            tables.append(Table(f"{name}: all figures", ["", *engines], rows, "Mean over rounds (geometric, except for "
                                "shares) with Student's 95 % interval, if there are at least three rounds.", folded))
    return tables


def blocks_table(blocks: Sequence[Block]) -> Table | None:
    """Returns a table of every block as it was measured, in order of time."""
    if not blocks:
        return None
    names = [f for f in FIGURES if any(supported(b, f) is not None for b in blocks)]
    rows = [[str(b.round), str(b.turn), b.cell, b.contestant, "valid" if b.valid else "void: " + "; ".join(b.reasons),
             *(figure_text(f, supported(b, f)) for f in names), b.started] for b in blocks]
    return Table("All blocks", ["round", "turn", "cell", "", "", *map(title_of, names), "started"], rows, folded=True)


def failed_of(block: Block) -> int:
    """Returns the failed requests of a block: a file has their share, and a sample of each successful request."""
    share, ended = block.figures.get("error_rate"), len(block.samples.get("e2e_ms", ()))
    return round(ended * share / (1 - share)) if isinstance(share, (int, float)) and 0 < share < 1 else 0


def void_points(blocks: Sequence[Block]) -> list[str]:
    """Returns a line for each void block."""
    return [f"round {b.round}, {b.cell}, {b.contestant}: {'; '.join(b.reasons) or 'no reason given'}"
            for b in blocks if not b.valid]
