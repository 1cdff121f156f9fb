"""Narrows schemas so that arguments come to an end: a value that fits the result fits the tool's own schema, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

OPEN = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf",
                  "$ref"))
LENGTH_KEYWORDS = frozenset(("enum", "const", "pattern", "format"))  # keywords that bound the length of a string
MINIMA = ("minLength",), ("minItems", "prefixItems", "items")
ONE, MANY = ("additionalProperties", "items"), ("prefixItems", "items", "anyOf", "allOf")
NAMED = ("properties", "patternProperties", "$defs", "definitions")  # keywords with schemas by name


class Bounds(NamedTuple):
    """Maximum lengths of strings and arrays in arguments whose schema has no maximum; 0: no maximum."""

    chars: int = 0
    items: int = 0


FREE = Bounds()


def closed(schema: object) -> object:
    """Returns the schema without additional properties, unless it has a schema for them or needs them.

    A model that may invent properties may never come to an end.
    """
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    if isinstance(properties := made.get("properties"), Mapping):
        made["properties"] = {name: closed(value) for name, value in properties.items()}
        enough = made.get("minProperties", 0) <= len(properties) and properties.keys() >= set(made.get("required", ()))
        if enough and not made.keys() & OPEN:
            made["additionalProperties"] = False
    if isinstance(made.get("items"), Mapping):
        made["items"] = closed(made["items"])
    return made


def bounded(schema: object, bounds: Bounds) -> object:
    """Returns the schema with `bounds` where it has none, or with the largest minimum in it if that is more.

    Members of `oneOf` stay unchanged: exactly one of them fits a value, and with narrower ones another might fit.
    """
    chars, items = (bound and max(bound, _most(schema, keys)) for bound, keys in zip(bounds, MINIMA, strict=True))
    return schema if bounds == FREE else _bounded(schema, Bounds(chars, items))


def _bounded(schema: object, bounds: Bounds) -> object:
    if not isinstance(schema, Mapping):
        return schema
    made = _inside(dict(schema), bounds)
    kinds = made.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if not made.keys() & LENGTH_KEYWORDS and bounds.chars and "string" in kinds:
        made.setdefault("maxLength", bounds.chars)
    if bounds.items and "array" in kinds:
        made.setdefault("maxItems", bounds.items)
    return made


def _inside(schema: dict[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Returns the schema with bounds in all schemas inside it."""
    for key, value in schema.items():
        if key in NAMED and isinstance(value, Mapping):
            schema[key] = {name: _bounded(member, bounds) for name, member in value.items()}
        elif key in MANY and isinstance(value, list):
            schema[key] = [_bounded(member, bounds) for member in value]
        elif key in ONE:
            schema[key] = _bounded(value, bounds)
    return schema


def _most(value: object, keys: Collection[str]) -> int:
    """Returns the largest number, or length of a list, of any of `keys` in a schema and the schemas in it."""
    if isinstance(value, list):
        return max((_most(member, keys) for member in value), default=0)
    if not isinstance(value, Mapping):
        return 0
    values = [value[key] for key in keys if key in value]
    sizes = [len(s) if isinstance(s, list) else int(s) if isinstance(s, int | float) else 0 for s in values]
    return max([*sizes, *(_most(member, keys) for member in value.values())], default=0)
