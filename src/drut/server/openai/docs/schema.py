"""Reads the OpenAPI document for people: the fields of a struct with type, bounds, default and meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
RANGES = (("minimum", "maximum", ""), ("minLength", "maxLength", " characters"), ("minItems", "maxItems", " items"))
PLURALS = {"string": "strings", "integer": "integers", "number": "numbers", "object": "objects", "any": "values"}
HUGE = 1 << 30  # a bound of this size is that of a number format, of no interest


@dataclass(frozen=True)
class FieldText:
    """A field in words. `struct`: the name of the struct that it is, or has items of."""

    name: str
    type: str
    bounds: str
    default: str
    text: str
    required: bool
    struct: str = ""


def fields_of(name: str, schemas: Mapping[str, Schema]) -> Iterator[FieldText]:
    """Yields the fields of a struct, required ones first."""
    schema = schemas[name]
    required = schema.get("required", ())
    for field, value in sorted(schema.get("properties", {}).items(), key=lambda item: item[0] not in required):
        text = next((part["description"] for part in (value, *parts(value)) if "description" in part), "")
        yield FieldText(name=field, type=type_of(value), bounds=bounds_of(value), default=default_of(value), text=text,
                        required=field in required, struct=next(structs(value), ""))


def parts(schema: Schema) -> list[Schema]:
    """Returns the alternatives of a schema, without null."""
    return [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"] or [schema]


def type_of(schema: Schema) -> str:
    """Returns a type in words, such as `list of strings`."""
    return " or ".join(dict.fromkeys(_type(part) for part in parts(schema)))


def _type(part: Schema) -> str:
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if "enum" in part:
        return " | ".join(json.dumps(value) for value in part["enum"])
    if part.get("type") == "array":
        return f"list of {PLURALS.get(item := type_of(part['items']), item)}" if part.get("items") else "list"
    if isinstance(held := part.get("additionalProperties"), dict) and "$ref" in held:
        return f"object of {_type(held)}"
    return str(part.get("type", "any"))


def bounds_of(schema: Schema) -> str:
    """Returns the bounds of a value in words, such as `0 to 100` or `at most 256 characters`."""
    return ", ".join(text for part in parts(schema) for least, most, unit in RANGES
                     if (text := _range(part, least, most, unit)))


def _range(part: Schema, least: str, most: str, unit: str) -> str:
    exclusive = "exclusiveM" + least[1:]
    low, high = ("" if value is None or abs(value) >= HUGE else f"{value:g}"
                 for value in (part.get(least, part.get(exclusive)), part.get(most)))
    if unit and low == "1" and high:  # a text or list that is not empty
        low = ""
    first = f"above {low}" if exclusive in part else low
    if first and high:
        return f"{first} to {high}{unit}"
    if high:
        return f"at most {high}{unit}"
    if exclusive in part or not low:
        return first
    return f"at least {low}{unit.removesuffix('s') if low == '1' else unit}"


def default_of(schema: Schema) -> str:
    """Returns the default as JSON, or in words; empty if there is none."""
    default = schema.get("x-default", schema.get("default"))
    if default is None or "x-default" in schema:
        return default or ""
    return f"{default:g}" if isinstance(default, float) else json.dumps(default)


def structs(schema: Schema) -> Iterator[str]:
    """Yields the names of the structs in a type."""
    for part in parts(schema):
        if "$ref" in part:
            yield str(part["$ref"]).rpartition("/")[2]
        for held in (part.get("items"), part.get("additionalProperties")):
            if isinstance(held, dict):
                yield from structs(held)
