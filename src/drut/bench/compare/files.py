"""The files of a comparison: comparison.json, blocks.csv, summary.md. Each gets its name only when it is complete."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec

from drut.bench.compare.schema import SCHEMA, Block, Comparison
from drut.bench.files import read_file, write_file
from drut.bench.result.figures import FIGURES

NAME = "comparison.json"
_COLUMNS = ("round", "turn", "contestant", "cell", "valid", "started")


def save(comparison: Comparison, folder: Path) -> None:
    """Writes comparison.json only, after each turn. Raises DrutError."""
    write(folder / NAME, msgspec.json.format(msgspec.json.encode(comparison), indent=1))


def write(path: Path, data: bytes) -> None:
    """Writes a file. Raises DrutError and leaves an existing file unchanged."""
    write_file(path, lambda file: file.write(data.decode()))


def load(folder: Path) -> Comparison:
    """Reads a comparison. Raises DrutError if it is missing, damaged or of another schema."""
    return read_file(folder / NAME, Comparison, SCHEMA, "a comparison")


def blocks_csv(blocks: list[Block]) -> bytes:
    """Returns one line for each block: its position, whether it counts and why not, its figures."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow([*_COLUMNS, *FIGURES, "reasons"])
    for block in blocks:
        figures = ("" if (value := block.figures.get(name)) is None else value for name in FIGURES)
        rows.writerow([*(getattr(block, name) for name in _COLUMNS), *figures, "; ".join(block.reasons)])
    return text.getvalue().encode()
