"""Reads the files of `drut bench`, each of which says its schema."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from drut.errors import DrutError

Document = TypeVar("Document")
MOST_BYTES = 1 << 30


def read_file(path: Path, kind: type[Document], schema: str, what: str) -> Document:
    """A file that says its schema, which must be `schema`; `what` it is to be, for the error. Raises DrutError."""
    return read_any(path, {schema: kind}, f"not {what}")


def read_any(path: Path, kinds: Mapping[str, type[Document]], damaged: str) -> Document:
    """A file of one of several kinds, by the schema that it says. Raises DrutError where it is missing, too large or of
    another schema, and where it is `damaged`, as the error puts it."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DrutError(f"{path} is larger than {MOST_BYTES >> 20} MiB")
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
