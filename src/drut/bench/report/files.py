"""Writes a result: result.json, requests.csv, summary.md."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import msgspec

from drut.bench.report.markdown import markdown
from drut.bench.report.reading import read_file
from drut.bench.report.schema import SCHEMA, Request, Result
from drut.errors import DrutError, RequestError

_NOT_IN_CSV = ("arrivals_ms", "arrival_chars", "arrival_told")


def make_folder(folder: Path) -> None:
    """Before a run, so that it is not lost for want of a place. Raises RequestError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"--out: cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise RequestError(f"--out: no files may be made in {folder}")


def write(result: Result, folder: Path) -> None:
    """All files; each takes its name only when it is whole. Raises DrutError when it has tried them all."""
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
    """A result.json. Raises DrutError where it is missing, damaged or of another schema."""
    return read_file(path, Result, SCHEMA, "a result")


def _csv(result: Result, file: TextIO) -> None:
    names = [name for name in Request.__struct_fields__ if name not in _NOT_IN_CSV]
    rows = csv.writer(file)
    rows.writerow(names)
    for request in result.requests:
        rows.writerow(["" if (value := getattr(request, name)) is None else value for name in names])


def write_file(path: Path, fill: Callable[[TextIO], object]) -> None:
    """It takes its name only when it is whole. Raises DrutError."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            fill(file)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise DrutError(f"cannot write {path}: {error.strerror}") from error
