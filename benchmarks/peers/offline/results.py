"""What was measured, as JSON files under build/compare/: one a model, column and company of engines, replaced by the
next run of that column in which all of them take part."""

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

from drut.machine import cpu_model

FOLDER = ROOT / "build" / "compare" / "results"

Result = dict[str, Any]


def machine(cpus: Sequence[int]) -> dict[str, Any]:
    """What a reader needs to judge a figure: the machine, and which Drut it was."""
    memory = next((line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines()
                   if line.startswith("MemTotal:")), "0")
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    return {"cpu": cpu_model(), "cpus": len(cpus), "memory_gb": int(memory) * 1024 / 1e9, "system": platform.release(),
            "python": platform.python_version(), "commit": commit or "unknown"}


def save(result: Result, folder: Path = FOLDER) -> Path:
    """Write `result`, whole or not at all, over those of its model and column that it makes needless."""
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
    """The engines measured beside each other, by name."""
    return tuple(sorted(result["engines"]))


def load_all(folder: Path = FOLDER) -> dict[tuple[str, tuple[str, ...]], list[Result]]:
    """By model, in the order of `MODELS`, and company of engines: the results of its columns."""
    found: dict[tuple[str, tuple[str, ...]], list[Result]] = {}
    for name in MODELS:
        for column in ("prefill", "decode1", "decode8", "decode32"):
            for path in sorted(folder.glob(f"{name}.{column}.*.json")):
                result = json.loads(path.read_text())
                found.setdefault((name, company(result)), []).append(result)
    order = list(MODELS)
    return dict(sorted(found.items(), key=lambda item: (order.index(item[0][0]), -len(item[1]))))
