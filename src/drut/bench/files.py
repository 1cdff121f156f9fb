"""Reads and writes documents: each states its schema, and a file gets its name only when it is complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO, TypeVar

import msgspec

from drut.errors import DrutError, RequestError

Document = TypeVar("Document")
MAX_BYTES = 1 << 30


def read_file(path: Path, kind: type[Document], schema: str, what: str) -> Document:
    """Reads a file whose schema must be `schema`; `what` names the kind of file in errors. Raises DrutError."""
    return read_any(path, {schema: kind}, f"not {what}")


def read_any(path: Path, kinds: Mapping[str, type[Document]], damaged: str) -> Document:
    """Reads a file of one of several kinds, by the schema that it states. Raises DrutError if it is missing, too large,
    of another schema, or invalid (`damaged` is the text for that)."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DrutError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise DrutError(f"cannot read {path}: {error.strerror}") from error
    try:
        found = msgspec.json.decode(data, type=_Schema).schema
        if found not in kinds:
            raise DrutError(f"{path} is of the schema {found!r}, not {' or '.join(map(repr, kinds))}")
        return msgspec.json.decode(data, type=kinds[found])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise DrutError(f"{path} is {damaged}: {error}") from error


class _Schema(msgspec.Struct):
    schema: str


def make_folder(folder: Path) -> None:
    """Creates the output folder before a run, so that results are not lost. Raises RequestError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"--out: cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise RequestError(f"--out: the folder {folder} is not writable")


def write_file(path: Path, fill: Callable[[TextIO], object]) -> None:
    """Writes a file. Raises DrutError and leaves an existing file unchanged."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            fill(file)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise DrutError(f"cannot write {path}: {error.strerror}") from error
