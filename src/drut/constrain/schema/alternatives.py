"""Rewrites `oneOf` as `anyOf`, which is equivalent if no value fits two members. An uncertain `oneOf` is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from drut.constrain.schema.arrays import same
from drut.constrain.schema.keywords import TYPES
from drut.errors import RequestError

Schema = dict[str, Any]
ALL = frozenset(kind for kind in TYPES if kind != "number") | {"fraction"}  # integers, and numbers with a fraction
MAX_MEMBERS = 256
DEEPEST = 4  # maximum nesting of properties that distinguish two members
MAX_WORK = 400_000


@dataclass
class _Facts:
    """Facts that hold for each value that fits several schemas at once."""

    types: frozenset[str] = ALL
    values: list[Any] | None = None  # all possible values, if they are known
    low: float = -math.inf
    high: float = math.inf
    sizes: dict[str, list[float]] = field(default_factory=lambda: {"string": [0, math.inf], "array": [0, math.inf]})
    required: set[str] = field(default_factory=set)
    objects: list[Schema] = field(default_factory=list)
    arrays: list[Schema] = field(default_factory=list)

    @cached_property
    def keys(self) -> frozenset[str]:
        """The values as texts. Integers are canonical, so that equal ones have the same text."""
        return frozenset(json.dumps(value, sort_keys=True) for value in self.values or ())


class Alternatives:
    """The alternatives of one canonical schema with known definitions."""

    def __init__(self, root: Schema | bool, definitions: Mapping[str, Schema | bool]) -> None:
        self._root, self._definitions = root, definitions
        self._known: dict[tuple[int, ...], _Facts] = {}  # facts of parts of members, by their schemas
        self._work = 0

    def settle(self, schema: Schema) -> None:
        """Replaces the schema's oneOf by anyOf. Raises RequestError if two of its members may fit the same value."""
        self._known = {}
        members = schema["oneOf"]
        if len(members) > MAX_MEMBERS:
            raise RequestError(f"oneOf of {len(members)} members; at most {MAX_MEMBERS} are supported")
        siblings = {key: value for key, value in schema.items() if key != "oneOf"}
        facts = [self._facts([siblings, member]) for member in members]
        for i, one in enumerate(facts):
            for j in range(i + 1, len(facts)):
                if not self._apart(one, facts[j], 0):
                    raise RequestError(f"oneOf: its members {i} and {j} may fit the same value; use anyOf")
        made = {"anyOf" if key == "oneOf" else key: value for key, value in schema.items()} if (
            "anyOf" not in schema) else siblings | {"allOf": [*schema.get("allOf", ()), {"anyOf": members}]}
        schema.clear()
        schema.update(made)

    def _flat(self, schemas: Sequence[Any]) -> Iterator[Any]:
        """Yields the schemas and all that they reference by $ref and allOf."""
        stack, seen = list(schemas), set[str]()
        while stack:
            schema = stack.pop()
            yield schema
            if not isinstance(schema, dict):
                continue
            stack += schema.get("allOf", ())
            if (ref := schema.get("$ref")) is not None and ref not in seen:
                seen.add(ref)
                stack.append(self._root if ref == "#" else self._definitions[ref.rpartition("/")[2]])

    def _facts(self, schemas: Sequence[Any], depth: int = 0) -> _Facts:
        self._work += 1
        facts = _Facts()
        for schema in self._flat(schemas):
            if schema is False:
                facts.types = frozenset()
            if not isinstance(schema, dict):
                continue
            if "type" in schema:
                facts.types &= _expanded(schema["type"])
            if "enum" in schema or "const" in schema:
                self._of_values(facts, schema["enum"] if "enum" in schema else [schema["const"]])
            for key in ("anyOf", "oneOf"):
                if key in schema and depth < DEEPEST and self._work < MAX_WORK:
                    self._of_members(facts, schema[key], depth)
            _of_numbers(facts, schema)
            for kind, least, most in (("string", "minLength", "maxLength"), ("array", "minItems", "maxItems")):
                size = facts.sizes[kind]
                size[:] = max(size[0], schema.get(least, 0)), min(size[1], schema.get(most, math.inf))
            facts.required.update(schema.get("required", ()))
            if schema.keys() & {"properties", "additionalProperties", "patternProperties"}:
                facts.objects.append(schema)
            if schema.keys() & {"prefixItems", "items"}:
                facts.arrays.append(schema)
        return facts

    def _of_values(self, facts: _Facts, values: list[Any]) -> None:
        facts.types &= frozenset(map(_type_of, values))
        facts.values = values if facts.values is None else [
            v for v in facts.values if any(same(v, other) for other in values)]

    def _of_members(self, facts: _Facts, members: list[Any], depth: int) -> None:
        found = [self._facts([member], depth + 1) for member in members]
        facts.types &= frozenset().union(*(one.types for one in found))
        values = [one.values for one in found]
        if all(v is not None for v in values):
            self._of_values(facts, [value for listed in values if listed is not None for value in listed])

    def _apart(self, one: _Facts, other: _Facts, depth: int) -> bool:
        """Whether it is certain that no value fits both."""
        self._work += 1
        types = one.types & other.types
        if one.values is not None and other.values is not None:
            return one.keys.isdisjoint(other.keys)
        return all(self._apart_in(kind, one, other, depth) for kind in types) and self._work < MAX_WORK

    def _apart_in(self, kind: str, one: _Facts, other: _Facts, depth: int) -> bool:
        if kind in ("integer", "fraction"):
            return one.high < other.low or other.high < one.low
        if kind in ("string", "array"):
            (low, high), (low_, high_) = one.sizes[kind], other.sizes[kind]
            if high < low_ or high_ < low:
                return True
        if depth >= DEEPEST:
            return False
        if kind == "array":
            both = int(min(64, max(one.sizes["array"][0], other.sizes["array"][0])))
            return any(self._apart_at(_at(one, i), _at(other, i), depth) for i in range(both))
        if kind == "object":
            return any(self._apart_at(_under(one, name), _under(other, name), depth)
                       for name in one.required | other.required)
        return False

    def _apart_at(self, one: list[Any], other: list[Any], depth: int) -> bool:
        return self._apart(self._part(one, depth + 1), self._part(other, depth + 1), depth + 1)

    def _part(self, schemas: list[Any], depth: int) -> _Facts:
        key = (depth, *map(id, schemas))
        if key not in self._known:
            self._known[key] = self._facts(schemas, depth)
        return self._known[key]


def _of_numbers(facts: _Facts, schema: Schema) -> None:
    """Adds facts of numbers. An exclusive bound counts as the next number, which is enough to distinguish ranges that
    meet in it."""
    for key, value in schema.items():
        if key in ("minimum", "exclusiveMinimum"):
            facts.low = max(facts.low, math.nextafter(value, math.inf) if key != "minimum" else value)
        elif key in ("maximum", "exclusiveMaximum"):
            facts.high = min(facts.high, math.nextafter(value, -math.inf) if key != "maximum" else value)


def _under(facts: _Facts, name: str) -> list[Any]:
    """Returns the schemas of a property's value."""
    found = []
    for schema in facts.objects:
        if name in schema.get("properties", {}):
            found.append(schema["properties"][name])
        elif "patternProperties" not in schema:
            found.append(schema.get("additionalProperties", True))
    return found


def _at(facts: _Facts, index: int) -> list[Any]:
    found = []
    for schema in facts.arrays:
        prefix = schema.get("prefixItems", ())
        found.append(prefix[index] if index < len(prefix) else schema.get("items", True))
    return found


def _expanded(types: str | list[str]) -> frozenset[str]:
    named = frozenset([types] if isinstance(types, str) else types)
    return named - {"number"} | {"integer", "fraction"} if "number" in named else named


def _type_of(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if float(value).is_integer() else "fraction"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"
