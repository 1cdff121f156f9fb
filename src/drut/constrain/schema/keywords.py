"""The keywords of JSON Schema: the drafts of each keyword, its valid values, and the type that it constrains."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from drut.constrain import limits, numbers
from drut.errors import RequestError

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
FIRST, LAST = 4, 2020  # drafts, by number or year: 4, 6, 7, 2019, 2020
EXTENSION = "x-"  # prefix of annotations that others define
MAX_COUNT = (1 << 31) - 1  # maximum of characters, items and properties: longer than any output


Made = tuple[dict[str, Any], list[dict[str, Any]]]  # a schema's keywords of one type, and further schemas


class Keyword(NamedTuple):
    """`kind`: the type whose values it constrains; "" for all."""

    value: Callable[[object], bool]
    wanted: str
    kind: str = ""
    first: int = FIRST
    last: int = LAST


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _count(value: object) -> bool:
    return _number(value) and float(value) >= 0 and float(value).is_integer()  # type: ignore[arg-type]


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _schemas(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_schema, value))


def _named(value: object) -> bool:
    return isinstance(value, dict) and all(map(_schema, value.values()))


def _types(value: object) -> bool:
    listed = value if isinstance(value, list) else [value]
    return bool(listed) and all(isinstance(item, str) and item in TYPES for item in listed)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _texts(value: object) -> bool:
    return value is None or isinstance(value, str)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _anything(value: object) -> bool:
    return True


NUMBER, COUNT = (_number, "a number"), (_count, "an integer from 0 on")
SCHEMA, SCHEMAS = (_schema, "a schema"), (_schemas, "a list of schemas, not empty")
NAMED, STRINGS, TEXT, FLAG = (_named, "an object of schemas"), (_strings, "a list of strings"), (_text, "a string"), (
    _flag, "true or false")
ANY, NOTE = (_anything, "anything"), (_texts, "a string")

KEYWORDS: Mapping[str, Keyword] = {
    "type": Keyword(_types, f"one of {', '.join(TYPES)}, or a list of them"),
    "enum": Keyword(lambda v: isinstance(v, list) and bool(v), "a list, not empty"), "const": Keyword(*ANY, first=6),
    "allOf": Keyword(*SCHEMAS), "anyOf": Keyword(*SCHEMAS), "oneOf": Keyword(*SCHEMAS), "not": Keyword(*SCHEMA),
    "if": Keyword(*SCHEMA, first=7), "then": Keyword(*SCHEMA, first=7), "else": Keyword(*SCHEMA, first=7),
    "$ref": Keyword(*TEXT), "$dynamicRef": Keyword(*TEXT, first=2020), "$recursiveRef": Keyword(
        lambda v: v == "#", "'#'", first=2019, last=2019),
    "properties": Keyword(*NAMED, "object"), "patternProperties": Keyword(*NAMED, "object"),
    "additionalProperties": Keyword(*SCHEMA, "object"), "required": Keyword(*STRINGS, "object"),
    "minProperties": Keyword(*COUNT, "object"), "maxProperties": Keyword(*COUNT, "object"),
    "propertyNames": Keyword(*SCHEMA, "object", first=6),
    "dependencies": Keyword(lambda v: isinstance(v, dict) and all(_schema(d) or _strings(d) for d in v.values()),
                            "an object of schemas and lists of strings", "object", last=7),
    "dependentRequired": Keyword(lambda v: isinstance(v, dict) and all(map(_strings, v.values())),
                                 "an object of lists of strings", "object", first=2019),
    "dependentSchemas": Keyword(*NAMED, "object", first=2019),
    "unevaluatedProperties": Keyword(*SCHEMA, "object", first=2019),
    "items": Keyword(lambda v: _schema(v) or (isinstance(v, list) and all(map(_schema, v))),
                     "a schema, or a list of schemas", "array"),
    "prefixItems": Keyword(*SCHEMAS, "array", first=2020), "additionalItems": Keyword(*SCHEMA, "array", last=2019),
    "minItems": Keyword(*COUNT, "array"), "maxItems": Keyword(*COUNT, "array"),
    "uniqueItems": Keyword(*FLAG, "array"), "contains": Keyword(*SCHEMA, "array", first=6),
    "minContains": Keyword(*COUNT, "array", first=2019), "maxContains": Keyword(*COUNT, "array", first=2019),
    "unevaluatedItems": Keyword(*SCHEMA, "array", first=2019),
    "minLength": Keyword(*COUNT, "string"), "maxLength": Keyword(*COUNT, "string"),
    "pattern": Keyword(*TEXT, "string"), "format": Keyword(*TEXT, "string"),
    "minimum": Keyword(*NUMBER, "number"), "maximum": Keyword(*NUMBER, "number"),
    "exclusiveMinimum": Keyword(lambda v: _number(v) or _flag(v), "a number", "number"),
    "exclusiveMaximum": Keyword(lambda v: _number(v) or _flag(v), "a number", "number"),
    "multipleOf": Keyword(*NUMBER, "number"),
}
# Annotations, which constrain nothing. Null counts as a missing text.
ANNOTATIONS: Mapping[str, Keyword] = {
    **{key: Keyword(*NOTE) for key in ("$comment", "title", "description", "contentEncoding", "contentMediaType")},
    **{key: Keyword(*TEXT) for key in ("$schema", "$id", "id", "$anchor", "$dynamicAnchor")},
    **{key: Keyword(*FLAG) for key in ("deprecated", "readOnly", "writeOnly", "nullable", "strict",
                                       "$recursiveAnchor")},
    **{key: Keyword(*ANY) for key in ("default", "examples", "example", "discriminator", "$vocabulary")},
    "$defs": Keyword(*NAMED), "definitions": Keyword(*NAMED), "contentSchema": Keyword(*SCHEMA),
}  # fmt: skip
ONE = ("not", "if", "then", "else", "additionalProperties", "propertyNames", "unevaluatedProperties", "additionalItems",
       "contains", "unevaluatedItems", "items", "contentSchema")  # keywords whose value is a schema
MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")


def check(schema: Mapping[str, Any], draft: int | None) -> None:
    """Raises RequestError for a keyword that is unknown, does not belong to `draft`, or has an invalid value."""
    for key, value in schema.items():
        keyword = KEYWORDS.get(key) or ANNOTATIONS.get(key)
        if keyword is None:
            if key.startswith(EXTENSION):
                continue
            raise RequestError(f"the keyword {key[:60]!r} is not supported")
        if draft is not None and not keyword.first <= draft <= keyword.last:
            raise RequestError(f"the keyword {key!r} does not belong to draft {draft}")
        if not keyword.value(value):
            raise RequestError(f"{key} must be {keyword.wanted}, not {_shown(value)}")
        _check_size(key, value)
    _check_exclusive(schema, draft)


def inside(schema: Mapping[str, Any]) -> list[tuple[tuple[str, ...], Any]]:
    """Returns the schemas directly inside this one, with the steps that lead to each."""
    found: list[tuple[tuple[str, ...], Any]] = [((key,), schema[key]) for key in ONE if key in schema]
    for key in MANY:
        if isinstance(members := schema.get(key), list):
            found += [((key, str(i)), member) for i, member in enumerate(members)]
    for key in MAPS:
        if isinstance(named := schema.get(key), dict):
            found += [((key, name), member) for name, member in named.items()]
    return [(steps, member) for steps, member in found if isinstance(member, dict | bool)]


def count(given: Mapping[str, Any], key: str, default: float = 0) -> Any:
    """Returns the value of a keyword that counts; an upper bound beyond every output counts as none. Raises
    RequestError for such a lower bound."""
    value = given.get(key)
    if value is None:
        return default
    if value > MAX_COUNT:
        if key.startswith("min"):
            raise RequestError(f"{key} {value:g}: no output is so long")
        return math.inf
    return int(value)


def _check_size(key: str, value: Any) -> None:
    if key == "enum" and len(value) > limits.MAX_ENUM:
        raise RequestError(f"an enum of {len(value)} values; at most {limits.MAX_ENUM} are allowed")
    if key in ("properties", "patternProperties", "required") and len(value) > limits.MAX_PROPERTIES:
        raise RequestError(f"{key} of {len(value)} names; at most {limits.MAX_PROPERTIES} are allowed")
    if key in ("const", "enum"):
        numbers.check_exact(key, value)
    if key == "multipleOf":
        limits.check_multiple(value)


def _check_exclusive(schema: Mapping[str, Any], draft: int | None) -> None:
    """Checks exclusive bounds: draft 4 has booleans, which make the sibling bound exclusive; later drafts have
    numbers."""
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if key in schema and draft is not None and isinstance(schema[key], bool) != (draft == 4):
            raise RequestError(f"{key} must be {'true or false' if draft == 4 else 'a number'} in draft {draft}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
