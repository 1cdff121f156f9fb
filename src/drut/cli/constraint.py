"""The flags that constrain answers."""

from __future__ import annotations

import argparse
from pathlib import Path

from drut.constrain import Constraint
from drut.constrain.limits import MAX_BYTES
from drut.errors import RequestError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, which exclude each other."""
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json-schema", metavar="FILE", help="answer with JSON that fits the schema in FILE")
    shape.add_argument("--regex", metavar="PATTERN", help="answer with a text that PATTERN matches as a whole")


def from_flags(args: argparse.Namespace) -> Constraint | None:
    """Returns the requested constraint. Raises RequestError if it is invalid, or its file cannot be read."""
    if args.regex is not None:
        return Constraint.regex(args.regex)
    return Constraint.json_schema(_read(args.json_schema)) if args.json_schema is not None else None


def _read(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            return file.read(MAX_BYTES + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RequestError(f"--json-schema {name}: {reason}") from None
