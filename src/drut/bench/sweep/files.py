"""Writes and reads a sweep's summary.json and summary.csv."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TextIO

import msgspec

from drut.bench.files import read_file, write_file
from drut.bench.result.figures import FIGURES
from drut.bench.sweep.schema import SCHEMA, Sweep, SweepPoint

NAME = "summary.json"
_COLUMNS = ("rate", "users", "folder", "valid", "steady", "requests", "failed")


def save(sweep: Sweep, folder: Path) -> None:
    """Writes both files, each complete or not at all. Raises DrutError."""
    write_file(folder / NAME, lambda file: file.write(msgspec.json.format(msgspec.json.encode(sweep)).decode()))
    write_file(folder / "summary.csv", lambda file: _csv(sweep.points, file))


def read(path: Path) -> Sweep:
    """Reads a summary.json. Raises DrutError if it is missing, damaged or of another schema."""
    return read_file(path, Sweep, SCHEMA, "a sweep")


def _csv(points: list[SweepPoint], file: TextIO) -> None:
    """Writes one row for each run."""
    rows = csv.writer(file)
    rows.writerow([*_COLUMNS, *FIGURES, "reasons"])
    for point in points:
        values = [*(getattr(point, name) for name in _COLUMNS), *(point.figures.get(name) for name in FIGURES),
                  "; ".join(point.reasons)]
        rows.writerow(["" if value is None else value for value in values])
