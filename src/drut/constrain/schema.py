"""A JSON schema made ready for the library: within bounds, every keyword known, whitespace bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from drut.constrain import limits, numbers
from drut.errors import RequestError

# Between the tokens of JSON at most one space: no model can pad for ever.
OPTIONS: Mapping[str, object] = {"whitespace_pattern": r"\x20?", "lenient": False, "coerce_one_of": False}
SUBSCHEMAS = ("additionalProperties", "additionalItems", "items")
SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")
SAME_INSTANCE = ("allOf", "anyOf", "oneOf")  # their members speak of the value that the schema itself speaks of
# What the library knows and what says nothing of a value; all else is refused by name.
CONSTRAINING = frozenset((
    "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties", "patternProperties",
    "additionalProperties", "required", "minProperties", "maxProperties", "items", "prefixItems", "additionalItems",
    "minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf",
))  # fmt: skip
ANNOTATIONS = frozenset((
    "$schema", "$id", "id", "$comment", "$defs", "definitions", "title", "description", "default", "examples",
    "example", "deprecated", "readOnly", "writeOnly", "nullable", "discriminator", "strict", "contentEncoding",
    "contentMediaType", "contentSchema",
))  # fmt: skip
EXTENSION = "x-"  # begins the names of annotations that others define
# The library lets February have 30 days, and any minute 61 seconds.
_LONG, _SHORT = "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])", "(0[469]|11)-(0[1-9]|[12][0-9]|30)"
_LEAP = "[1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00"
_DATE = f"([1-9][0-9]{{3}}-({_LONG}|{_SHORT}|02-(0[1-9]|1[0-9]|2[0-8]))|({_LEAP})-02-29)"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
FORMATS: Mapping[str, str] = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$"}


def prepared(schema: Mapping[str, Any] | bool | str, name: str = "schema") -> str:
    """The schema as the library gets it, a JSON text. RequestError names the keyword at fault."""
    text = schema if isinstance(schema, str) else limits.write_json(name, schema)
    limits.check_text(name, text, limits.MOST_BYTES)
    root = limits.read_json(name, text)
    if root is False:
        raise RequestError(f"{name}: false allows no value")
    if not isinstance(root, dict | bool):
        raise RequestError(f"{name} must be an object, not {type(root).__name__}")
    limits.check_size(name, root)
    checked: dict[str, Any] = root if isinstance(root, dict) else {}
    checked.pop("x-guidance", None)  # what `prepared` itself has set
    for part in list(parts(checked)):
        _check(part, name)
        _spell_out(part)
    _check_chains(checked, name)
    _check_cycles(checked, name)
    return limits.write_json(name, {**checked, "x-guidance": OPTIONS})


def parts(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all those in it."""
    stack: list[object] = [root]
    while stack:
        schema = stack.pop()
        if not isinstance(schema, dict):
            continue
        yield schema
        stack += _inside(schema)


def _inside(schema: dict[str, Any]) -> list[object]:
    """The schemas that are written directly in this one."""
    found = [schema[key] for key in SUBSCHEMAS if key in schema]
    for key in SCHEMA_LISTS:
        if isinstance(members := schema.get(key), list):
            found += members
    for key in SCHEMA_MAPS:
        if isinstance(named := schema.get(key), dict):
            found += named.values()
    return found


def _check(schema: dict[str, Any], name: str) -> None:
    for key, value in schema.items():
        if key not in CONSTRAINING and key not in ANNOTATIONS and not key.startswith(EXTENSION):
            raise RequestError(f"{name}: the keyword {key[:60]!r} is not supported")
        if key == "enum" and isinstance(value, list) and len(value) > limits.MOST_ENUM:
            raise RequestError(f"{name}: an enum of {len(value)} values; at most {limits.MOST_ENUM} are allowed")
        if key in ("const", "enum"):
            numbers.check_exact(f"{name}: {key}", value)
        named = isinstance(value, dict | list) and key in ("properties", "patternProperties", "required")
        if named and len(value) > limits.MOST_PROPERTIES:
            raise RequestError(f"{name}: {key} of {len(value)} names; at most {limits.MOST_PROPERTIES} are allowed")
        patterns = (value,) if key == "pattern" else value if key == "patternProperties" else ()
        if isinstance(patterns, Iterable) and any(isinstance(p, str) and "\0" in p for p in patterns):
            raise RequestError(f"{name}: {key} holds a NUL character")
        if key == "multipleOf":
            limits.check_multiple(value)


def _spell_out(schema: dict[str, Any]) -> None:
    """Puts bounds that it reads rightly, and a pattern in the place of a format that the library takes too lightly."""
    schema.update({key: numbers.bound(key, schema[key]) for key in numbers.BOUNDS if key in schema})
    if not isinstance(name := schema.get("format"), str) or (pattern := FORMATS.get(name)) is None:
        return
    del schema["format"]
    others = schema.get("allOf")
    schema["allOf"] = [*(others if isinstance(others, list) else ()), {"pattern": pattern}]


def _check_chains(root: dict[str, Any], name: str) -> None:
    """RequestError for a $ref to what is no schema, and so was not checked, and for chains of them that may get too
    long: the library follows them by recursion."""
    depths: dict[int, int] = {id(True): 1, id(False): 1}

    def depth(schema: object) -> int:
        known = depths.get(id(schema))
        if known is None:
            inside = _inside(schema) if isinstance(schema, dict) else []
            known = depths[id(schema)] = 1 + max(map(depth, inside), default=0)
        return known

    depth(root)
    known = set(depths)
    targets: dict[int, object] = {}
    for part in parts(root):
        if isinstance(ref := part.get("$ref"), str):
            target = _target(root, ref, name)
            if id(target) not in known:
                raise RequestError(f"{name}: $ref {ref[:80]!r} leads to what is no schema")
            targets[id(target)] = target
    if sum(map(depth, targets.values())) > limits.MOST_CHAIN:
        raise RequestError(f"{name}: what $ref leads to is nested more than {limits.MOST_CHAIN} deep in all")


def _check_cycles(root: dict[str, Any], name: str) -> None:
    """RequestError for a $ref that leads back to itself without going into the value, or leaves the schema."""
    finished: set[int] = set()
    for start in parts(root):
        path: dict[int, None] = {}  # of schemas that all speak of one value
        stack: list[tuple[object, bool]] = [(start, False)]
        while stack:
            schema, leaving = stack.pop()
            if not isinstance(schema, dict) or id(schema) in finished:
                continue
            if leaving:
                path.pop(id(schema))
                finished.add(id(schema))
                continue
            if id(schema) in path:
                raise RequestError(f"{name}: a $ref leads back to itself")
            path[id(schema)] = None
            stack.append((schema, True))
            if isinstance(ref := schema.get("$ref"), str):
                stack.append((_target(root, ref, name), False))
            for key in SAME_INSTANCE:
                if isinstance(members := schema.get(key), list):
                    stack += [(member, False) for member in members]


def _target(root: dict[str, Any], ref: str, name: str) -> object:
    if ref != "#" and not ref.startswith("#/"):
        raise RequestError(f"{name}: $ref {ref[:80]!r} leads out of the schema; only #/... is supported")
    found: Any = root
    for step in ref[1:].split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            raise RequestError(f"{name}: $ref {ref[:80]!r} names nothing in the schema")
    return found
