"""Reads the small text files of a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

from drut.errors import ModelFileError

MAX_CONFIG_BYTES = 16 << 20


def read_text(path: Path, limit: int = MAX_CONFIG_BYTES) -> str | None:
    """Returns the text of a file, or None if there is no file. Raises ModelFileError for more than `limit` bytes."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise ModelFileError(f"{path}: not a regular file")
        size = path.stat().st_size
        if size > limit:
            raise ModelFileError(f"{path}: {size} bytes is more than the maximum of {limit}")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ModelFileError(f"{path}: not UTF-8 text") from None


def read_object(path: Path) -> dict[str, object]:
    """Returns the JSON object in a file; an empty one if there is no file. Raises ModelFileError for other contents."""
    text = read_text(path)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path}: not valid JSON") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: must be a JSON object, not {type(value).__name__}")
    return value
