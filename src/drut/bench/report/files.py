"""Writes a result: result.json, requests.csv, summary.md."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec

from drut.bench.files import read_file, write_file
from drut.bench.report.markdown import markdown
from drut.bench.result.schema import SCHEMA, ReportRequest, Result
from drut.errors import DrutError

_NOT_IN_CSV = ("arrivals_ms", "arrival_chars", "arrival_reported")


def write(result: Result, folder: Path) -> None:
    """Writes all files; each gets its name only when it is complete. Raises DrutError after it has tried all of
    them."""
    data = msgspec.json.encode(result)
    fills: dict[str, Callable[[TextIO], object]] = {
        "result.json": lambda file: file.write(data.decode()),
        "requests.csv": lambda file: _csv(result, file),
        "summary.md": lambda file: print(markdown(result), file=file)}
    problems = []
    for name, fill in fills.items():
        try:
            write_file(folder / name, fill)
        except DrutError as error:
            problems.append(str(error))
    if problems:
        raise DrutError("; ".join(problems))


def read(path: Path) -> Result:
    """Reads a result.json. Raises DrutError if it is missing, damaged or of another schema."""
    return read_file(path, Result, SCHEMA, "a result")


def _csv(result: Result, file: TextIO) -> None:
    names = [name for name in ReportRequest.__struct_fields__ if name not in _NOT_IN_CSV]
    rows = csv.writer(file)
    rows.writerow(names)
    for request in result.requests:
        rows.writerow(["" if (value := getattr(request, name)) is None else value for name in names])
