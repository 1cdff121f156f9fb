"""Typed access to a model's metadata: GGUF keys or a parsed `config.json`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TypeVar, cast, overload

from drut.errors import ModelFileError

T = TypeVar("T", bound=int | float | str)
Path = str | os.PathLike[str]

_NOUNS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a finite number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def require(metadata: Mapping[str, object], key: str, kind: type[T], path: Path) -> T:
    """Returns the value of `key` as `kind`: int, float, str or bool. An integer is valid as a float; NaN is not.

    Raises ModelFileError, which names `path` and `key`, if the key is missing, null or has another type.
    """
    value = metadata.get(key)
    if value is None:
        raise ModelFileError(f"{os.fspath(path)}: key {key!r} is missing")
    return _checked(value, kind, path, f"key {key!r}")


@overload
def optional(metadata: Mapping[str, object], key: str, kind: type[T], path: Path) -> T | None: ...
@overload
def optional(metadata: Mapping[str, object], key: str, kind: type[T], path: Path, default: T) -> T: ...
def optional(
    metadata: Mapping[str, object], key: str, kind: type[T], path: Path, default: T | None = None
) -> T | None:
    """Does what `require` does, but returns `default` if the key is missing or null."""
    return default if metadata.get(key) is None else require(metadata, key, kind, path)


def require_list(metadata: Mapping[str, object], key: str, kind: type[T], path: Path) -> list[T]:
    """Returns the list at `key`, with each element as in `require`. A ModelFileError names path, key and element."""
    values = metadata.get(key)
    if values is None:
        raise ModelFileError(f"{os.fspath(path)}: key {key!r} is missing")
    if not isinstance(values, list):
        raise ModelFileError(f"{os.fspath(path)}: key {key!r} must be a list, not {_describe(values)}")
    if kind is not float and set(map(type, values)) <= {kind}:  # fast path: a vocabulary has 100,000 elements
        return list(values)
    return [_checked(value, kind, path, f"element {i} of key {key!r}") for i, value in enumerate(values)]


def _checked(value: object, kind: type[T], path: Path, what: str) -> T:
    if kind is float and type(value) is int and value.bit_length() < 1024:
        return cast(T, float(value))
    if type(value) is not kind or (isinstance(value, float) and not math.isfinite(value)):
        raise ModelFileError(f"{os.fspath(path)}: {what} must be {_NOUNS[kind]}, not {_describe(value)}")
    return value


def _describe(value: object) -> str:
    return repr(value) if isinstance(value, float) else _NOUNS.get(type(value), type(value).__name__)
