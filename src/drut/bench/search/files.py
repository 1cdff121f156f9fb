"""Writes search.json, search.csv and summary.md."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TextIO

import msgspec

from drut.bench.files import read_file, write_file
from drut.bench.result.figures import FIGURES
from drut.bench.search.markdown import markdown
from drut.bench.search.schema import SCHEMA, Point, Search
from drut.errors import DrutError

_LISTS = ("reasons", "figures")


def save(search: Search, folder: Path) -> None:
    """Writes all three files, each complete or not at all. Raises DrutError after it has tried all of them."""
    problems = []
    for name, fill in {"search.json": _json, "search.csv": _csv, "summary.md": _summary}.items():
        try:
            write_file(folder / name, lambda file, fill=fill: fill(search, file))  # type: ignore[misc]
        except DrutError as error:
            problems.append(str(error))
    if problems:
        raise DrutError("; ".join(problems))


def read(path: Path) -> Search:
    """Reads a search.json. Raises DrutError if it is missing, damaged or of another schema."""
    return read_file(path, Search, SCHEMA, "a search")


def _json(search: Search, file: TextIO) -> None:
    file.write(msgspec.json.format(msgspec.json.encode(search)).decode())


def _csv(search: Search, file: TextIO) -> None:
    """Writes one row for each run."""
    names = [name for name in Point.__struct_fields__ if name not in _LISTS]
    rows = csv.writer(file)
    rows.writerow([*names, *FIGURES, "reasons"])
    for point in search.points:
        values = [*(getattr(point, name) for name in names), *(point.figures.get(name) for name in FIGURES),
                  "; ".join(point.reasons)]
        rows.writerow(["" if value is None else value for value in values])


def _summary(search: Search, file: TextIO) -> None:
    print(markdown(search), file=file)
