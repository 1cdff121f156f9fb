"""The files of a comparison: comparison.json, blocks.csv, summary.md. Each takes its name only when it is whole."""

from __future__ import annotations

import csv
import io
from contextlib import suppress
from pathlib import Path

import msgspec

from drut.bench.compare.figures import FIGURES
from drut.bench.compare.schema import SCHEMA, Block, Comparison
from drut.errors import DrutError

NAME = "comparison.json"
_COLUMNS = ("round", "turn", "contestant", "cell", "valid", "started")


def save(comparison: Comparison, folder: Path) -> None:
    """comparison.json alone, after each turn. Raises DrutError."""
    write(folder / NAME, msgspec.json.format(msgspec.json.encode(comparison), indent=1))


def write(path: Path, data: bytes) -> None:
    """Raises DrutError, the file of before untouched."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise DrutError(f"cannot write {path}: {error.strerror}") from error


def load(folder: Path) -> Comparison:
    """Raises DrutError where there is none, or it is damaged or of another schema."""
    path = folder / NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Comparison)
    except OSError as error:
        raise DrutError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DrutError(f"{path} is no comparison: {error}") from error
    if found.schema != SCHEMA:
        raise DrutError(f"{path} is of the schema {found.schema!r}, not {SCHEMA!r}")
    return found


def blocks_csv(blocks: list[Block]) -> bytes:
    """A line a block: where it stood, whether it counts and why not, its figures."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow([*_COLUMNS, *FIGURES, "reasons"])
    for block in blocks:
        figures = ("" if (value := block.figures.get(name)) is None else value for name in FIGURES)
        rows.writerow([*(getattr(block, name) for name in _COLUMNS), *figures, "; ".join(block.reasons)])
    return text.getvalue().encode()
