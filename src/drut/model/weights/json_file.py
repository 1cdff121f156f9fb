"""Reads JSON from untrusted files: bounded in bytes, items and depth, without duplicate keys, UTF-8 only."""

from __future__ import annotations

import json
import os
from pathlib import Path

from drut.errors import ModelFileError
from drut.model.weights.mapping import quote

MAX_JSON_BYTES = 100_000_000
MAX_JSON_ITEMS = 8 << 20  # each costs up to about 100 bytes once parsed


class _DuplicateKeyError(ValueError):
    pass


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _DuplicateKeyError(f"key {quote(twice)} occurs twice")
    return table


def parse_json(raw: bytes, path: str | os.PathLike[str], what: str = "the file") -> dict[str, object]:
    """Returns the JSON object in `raw`. Raises ModelFileError, which names `path` and `what`, for other contents or
    beyond the bounds."""
    if sum(raw.count(c) for c in b",[{") > MAX_JSON_ITEMS:
        raise ModelFileError(f"{os.fspath(path)}: {what} has more than {MAX_JSON_ITEMS} JSON items")
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise ModelFileError(f"{os.fspath(path)}: {what} is JSON nested too deeply") from None
    except _DuplicateKeyError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, integers of too many digits
        raise ModelFileError(f"{os.fspath(path)}: {what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{os.fspath(path)}: {what} is not a JSON object")
    return value


def read_json(path: str | os.PathLike[str]) -> dict[str, object]:
    """Returns the JSON object in the file at `path`, of at most MAX_JSON_BYTES. Raises as `parse_json` does."""
    path = Path(path)
    try:
        if not path.is_file():
            raise ModelFileError(f"{path}: " + ("not a regular file" if path.exists() else "no such file"))
        with path.open("rb") as file:
            raw = file.read(MAX_JSON_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_JSON_BYTES:
        raise ModelFileError(f"{path}: longer than {MAX_JSON_BYTES} bytes")
    return parse_json(raw, path)
