"""Results as JSON files under build/compare/: one for each model, column and company of engines, replaced by the next
run of that column with all of them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.build import ROOT
from benchmarks.peers.models import MODELS
from benchmarks.peers.offline.columns import COLUMNS

from drut.machine import cpu_model

FOLDER = ROOT / "build" / "compare" / "results"

Result = dict[str, Any]


def machine(cpus: Sequence[int]) -> dict[str, Any]:
    """Describes the machine and the version of Drut."""
    memory = next((line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines()
                   if line.startswith("MemTotal:")), "0")
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {"cpu": cpu_model(), "cpus": len(cpus), "memory_gb": int(memory) * 1024 / 1e9, "system": platform.release(),
            "python": platform.python_version(), "commit": commit or "unknown"}


def save(result: Result, folder: Path = FOLDER) -> Path:
    """Writes `result`, complete or not at all, and removes results of its model and column that it replaces."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['model']}.{result['column']}.{'+'.join(company(result))}.json"
    for old in folder.glob(f"{result['model']}.{result['column']}.*.json"):
        if set(company(json.loads(old.read_text()))) < set(company(result)):
            old.unlink()
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1))
    os.replace(partial, path)
    return path


def company(result: Result) -> tuple[str, ...]:
    """Returns the names of the engines that were measured together."""
    return tuple(sorted(result["engines"]))


def load_all(folder: Path = FOLDER) -> dict[tuple[str, tuple[str, ...]], list[Result]]:
    """Returns the results by model, in the order of `MODELS`, and company of engines."""
    found: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
    for name in MODELS:
        for column in COLUMNS:
            for path in sorted(folder.glob(f"{name}.{column}.*.json")):
                result = json.loads(path.read_text())
                found.setdefault((name, company(result)), []).append(result)
    order = list(MODELS)
    return dict(sorted(found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1]))))
