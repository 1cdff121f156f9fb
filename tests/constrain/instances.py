"""Instances of a JSON schema, found by trying: guesses that its keywords suggest, kept where a validator agrees."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

from tests.constrain.schema_maker import CONSTANTS, NAMES, NUMBERS, PATTERNS, STRINGS

MAX_ORDERS = 120
FITTING = {"date": "2024-02-29", "ipv4": "127.0.0.1", "uuid": "00000000-0000-4000-8000-000000000000"}


class Guesser:
    """Guesses for one document."""

    def __init__(self, dice: random.Random, root: dict[str, Any]) -> None:
        self._dice, self._root = dice, root

    def guess(self, schema: Any, depth: int = 3) -> Any:
        """A value that may fit."""
        dice = self._dice
        if not isinstance(schema, dict) or depth <= 0:
            return self._any(depth)
        if "$ref" in schema and dice.random() < 0.9:
            target: Any = self._root
            for step in schema["$ref"].split("/")[1:]:
                target = target[step]
            return self.guess(target, depth - 1)
        if "const" in schema or "enum" in schema:
            return dice.choice([schema["const"]] if "const" in schema else schema["enum"])
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema and dice.random() < 0.6:
                other = dice.choice(schema[key])
                return self.guess({**{k: v for k, v in schema.items() if k != key}, **other} if isinstance(
                    other, dict) else schema | {key: [True]}, depth - 1)
        kinds = schema.get("type") or self._suggested(schema)
        return self._of(dice.choice([kinds] if isinstance(kinds, str) else list(kinds)), schema, depth)

    def _suggested(self, schema: dict[str, Any]) -> list[str]:
        keys = schema.keys()
        found = [kind for kind, some in (("object", {"properties", "required", "additionalProperties", "minProperties",
                                                     "patternProperties", "propertyNames"}),
                                         ("array", {"items", "prefixItems", "minItems", "contains"}),
                                         ("string", {"pattern", "minLength", "format", "maxLength"}),
                                         ("number", {"minimum", "maximum", "multipleOf"})) if keys & some]
        return [*found, "null", "boolean"] if found else ["null", "boolean", "string", "number", "array", "object"]

    def _of(self, kind: str, schema: dict[str, Any], depth: int) -> Any:
        dice = self._dice
        match kind:
            case "null":
                return None
            case "boolean":
                return dice.random() < 0.5
            case "string":
                near = PATTERNS.get(schema.get("pattern", ""), STRINGS)
                text = FITTING.get(schema.get("format", "")) or dice.choice(near)
                low = schema.get("minLength", 0)
                return text + "a" * max(0, low - len(text)) if dice.random() < 0.8 else text
            case "number" | "integer":
                return self._number(kind, schema)
            case "array":
                return self._array(schema, depth)
            case _:
                return self._object(schema, depth)

    def _number(self, kind: str, schema: dict[str, Any]) -> Any:
        dice = self._dice
        near = [v for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
                if (v := schema.get(key)) is not None and not isinstance(v, bool)]
        value = dice.choice([*near, *NUMBERS]) + dice.choice((0, 0, 1, -1, 0.5))
        if "multipleOf" in schema:
            value = round(value / schema["multipleOf"]) * schema["multipleOf"]
        return int(value) if kind == "integer" or value == int(value) else value

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        items = schema.get("items", True)
        prefix = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        low = max(schema.get("minItems", 0), 1 if "contains" in schema else 0)
        size = min(low + self._dice.choice((0, 0, 1, 2)), schema.get("maxItems", 9))
        return [self.guess(prefix[i] if i < len(prefix) else rest, depth - 1) for i in range(size)]

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        dice, properties = self._dice, schema.get("properties", {})
        names = [*properties, *(n for n in schema.get("required", ()) if n not in properties)]
        names = [n for n in names if n in schema.get("required", ()) or dice.random() < 0.5]
        others = [*NAMES, *(text for p in schema.get("patternProperties", {}) for text in PATTERNS[p]), "x-1"]
        low = schema.get("minProperties", 0)
        while len(set(names)) < low or dice.random() < 0.3:
            names.append(dice.choice(others))
            low -= len(names) > 9
        by_pattern = {text: s for p, s in schema.get("patternProperties", {}).items() for text in PATTERNS[p]}
        rest = schema.get("additionalProperties", True)
        return {n: self.guess(properties.get(n, by_pattern.get(n, rest)), depth - 1) for n in dict.fromkeys(names)}

    def _any(self, depth: int) -> Any:
        return self._dice.choice(CONSTANTS)


def spellings(value: Any) -> Iterator[str]:
    """The value as JSON, its objects in all orders, up to MAX_ORDERS."""
    for ordered in itertools.islice(_orders(value), MAX_ORDERS):
        yield json.dumps(ordered, ensure_ascii=False)


def _orders(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from map(list, itertools.product(*(list(itertools.islice(_orders(v), 24)) for v in value)))
    elif isinstance(value, dict):
        for names in itertools.permutations(value):
            members = (list(itertools.islice(_orders(value[name]), 24)) for name in names)
            for chosen in itertools.product(*members):
                yield dict(zip(names, chosen, strict=True))
    else:
        yield value
