"""What docs/benchmarks.md needs of the results: spreads over rounds instead of every round. Stored next to the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.build import ROOT
from benchmarks.peers.offline.contestants import AGAINST, NAMES
from benchmarks.peers.offline.results import Result
from benchmarks.peers.offline.summary import agreement, cpus, others, ratio, speed
from benchmarks.report import Spread

PATH = ROOT / "docs" / "results" / "benchmarks.json"

Table = dict[str, Any]  # of one model and company of engines
Groups = dict[tuple[str, tuple[str, ...]], list[Result]]  # by model and company of engines


def condense(results: Groups) -> list[Table]:
    """Returns a table for each model and company of engines."""
    return [_table(name, columns) for (name, _), columns in results.items()]


def _table(model: str, columns: Sequence[Result]) -> Table:
    engines = {n: r["engines"][n] for r in columns for n in r["engines"]}
    names = [n for n in NAMES if n in engines]
    rounds = [record for r in columns for record in r["rounds"]]
    same = {n: share for n in names if AGAINST.get(n) in names
            and (share := agreement(rounds, n, AGAINST[n])) is not None}
    return {"model": model, "engines": {n: engines[n] for n in names}, "columns": [_column(r, names) for r in columns],
            "agreement": same, "missing": {n: why for r in columns for n, why in r["missing"].items()}}


def _column(r: Result, names: Sequence[str]) -> dict[str, Any]:
    rounds = r["rounds"]
    ratios = {n: ratio(rounds, AGAINST[n], n) for n in names if AGAINST.get(n) in names}
    busy = others(rounds)
    return {"column": r["column"], "title": r["title"], "when": r["when"], "command": r["command"],
            "rounds": len(rounds), "roof": r["roof"], "machine": r["machine"],
            "others": None if busy is None else _list(busy),
            "speed": _lists({n: speed(rounds, n) for n in names}), "ratio": _lists(ratios),
            "share": _lists({n: _share(r, n) for n in names if r["engines"].get(n, {}).get("same_file")}),
            "bound_by": r.get("bound_by", {}).get("best"),
            "cpus": {n: used.median for n in names if (used := cpus(rounds, n)) is not None}}


def _share(r: Result, name: str) -> Spread | None:
    roof = r["roof_tokens_per_s"].get("avx2" if name.endswith("-avx2") else "best")
    figure = speed(r["rounds"], name)
    return None if not roof or figure is None else figure.scaled(100 / roof)


def _lists(spreads: dict[str, Spread | None]) -> dict[str, list[float]]:
    return {n: _list(s) for n, s in spreads.items() if s is not None}


def _list(s: Spread) -> list[float]:
    return [float(f"{value:.4g}") for value in (s.median, s.low, s.high)]


def save(tables: Sequence[Table], path: Path = PATH) -> None:
    """Writes the tables."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(tables, indent=1) + "\n")


def load(path: Path = PATH) -> list[Table]:
    """Reads the tables; empty if there are none."""
    tables: list[Table] = json.loads(path.read_text()) if path.exists() else []
    return tables


def update(old: Sequence[Table], new: Sequence[Table]) -> list[Table]:
    """Returns the new tables, and those old ones whose model has no new table: a part of the models can be measured on
    a fresh checkout."""
    measured = {table["model"] for table in new}
    return [*new, *(table for table in old if table["model"] not in measured)]
