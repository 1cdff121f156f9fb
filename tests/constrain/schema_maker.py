"""Random JSON schemas of every draft: small, and rich in keywords that meet each other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

URIS = {4: "http://json-schema.org/draft-04/schema#", 6: "http://json-schema.org/draft-06/schema#",
        7: "http://json-schema.org/draft-07/schema#", 2019: "https://json-schema.org/draft/2019-09/schema",
        2020: "https://json-schema.org/draft/2020-12/schema"}
NAMES = ("a", "b", "c", "é/~", "a b")
PATTERNS = {"^a": ["a", "ab", "a b"], "b$": ["b", "ab", "a b"], "^[a-c]{1,3}$": ["a", "ab", "cab"], "é": ["é/~"],
            "^x-": ["x-1", "x-"], "^(a|b)$": ["a", "b"], "^$": [""], "a.c|^b": ["abc", "b"], "^\\w+$": ["ab", "a1"]}
STRINGS = ("", "a", "b", "c", "ab", "abc", "a b", "é/~", "x-1", "cab", "😀", 'q"\\', "\n")
CONSTANTS: tuple[Any, ...] = (*STRINGS, 0, 1, 2, 3, -1, 7, 1.5, -0.25, 100, True, False, None, [], [1], ["a", 2], {},
                              {"a": 1}, {"b": "x", "a": None})
NUMBERS = (-3, -1, 0, 1, 2, 3, 5, 10, 0.5, 2.5, -1.25, 99, 100)
TYPES = ("string", "integer", "null", "array", "object", "boolean", "number")
FORMATS = ("date", "ipv4", "uuid", "password", "x-own", "int32")
SCALARS: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "minItems", "maxItems", "uniqueItems", "contains"),
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties"),
}  # fmt: skip
OWN: dict[int, tuple[str, ...]] = {
    4: ("additionalItems", "dependencies"), 6: ("const", "propertyNames", "additionalItems", "dependencies"),
    7: ("const", "propertyNames", "additionalItems", "dependencies", "if"),
    2019: ("const", "propertyNames", "additionalItems", "dependentRequired", "dependentSchemas", "minContains",
           "unevaluatedItems", "unevaluatedProperties", "if"),
    2020: ("const", "propertyNames", "prefixItems", "dependentRequired", "dependentSchemas", "minContains",
           "unevaluatedItems", "unevaluatedProperties", "if"),
}  # fmt: skip
COMMON = ("type", "enum", "allOf", "anyOf", "oneOf", "not", "$ref", "title", "default")
ARRAYS = ("prefixItems", "additionalItems", "minContains", "unevaluatedItems")


def keywords_of(draft: int) -> list[str]:
    """All keywords that are made for a draft."""
    found = [*COMMON, *OWN[draft], *(key for keys in SCALARS.values() for key in keys)]
    return [key for key in found if draft > 4 or key != "contains"]


class Maker:
    """Makes schemas of one draft, each from the dice alone."""

    def __init__(self, dice: random.Random, draft: int) -> None:
        self._dice, self._draft = dice, draft
        self._container = "$defs" if draft >= 2019 else "definitions"

    def root(self) -> dict[str, Any]:
        """Returns a schema with definitions; it names its draft, except that 2020-12 may be omitted."""
        schema = self.schema(self._dice.choice((1, 2, 2, 3)))
        made = schema if isinstance(schema, dict) else {"type": "object"}
        return self.whole(made)

    def whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The schema as a document."""
        says = {} if self._draft == 2020 and self._dice.random() < 0.5 else {"$schema": URIS[self._draft]}
        definitions = {"T": self.schema(1), "U": {"enum": ["a", 2]}, "R": {
            "type": "object", "properties": {"a": {"$ref": f"#/{self._container}/R"}}}}
        return {**says, **schema, self._container: definitions}

    def schema(self, depth: int) -> Any:
        dice = self._dice
        if depth <= 0 or dice.random() < 0.15:
            return self._leaf()
        keys: list[str] = []
        if dice.random() < 0.75:
            kind = dice.choice(("string", "number", "integer", "array", "object", "object", "array"))
            fitting = [*SCALARS["number" if kind == "integer" else kind]]
            own = [key for key in OWN[self._draft] if (key in ARRAYS) == (kind == "array")] if kind in (
                "array", "object") else []
            keys = dice.sample([*fitting, *own], dice.randint(0, min(4, len(fitting))))
            made: dict[str, Any] = {"type": kind}
        else:
            made = {}
        if dice.random() < 0.35 or not made:
            keys += dice.sample(keywords_of(self._draft), dice.randint(1, 3))
        dice.shuffle(keys)
        for key in keys:
            if key not in made and not (self._draft == 4 and key == "contains"):
                made[key] = self.value(key, depth - 1)
                self._complete(made, key, depth - 1)
        return made

    def _complete(self, made: dict[str, Any], key: str, depth: int) -> None:
        """Adds what a keyword is seldom without."""
        if key.startswith("exclusive") and self._draft == 4:
            made[key.replace("exclusiveM", "m")] = self._dice.choice(NUMBERS)
        if key == "if":
            made[self._dice.choice(("then", "else"))] = self.schema(depth)
        if key == "minContains":
            made.setdefault("contains", self.schema(depth))
        if key in ("additionalItems",) and self._dice.random() < 0.8:
            made["items"] = [self.schema(depth) for _ in range(self._dice.randint(1, 2))]
        if key == "uniqueItems" and self._dice.random() < 0.6:
            made["items"] = {"enum": ["a", 2, None][: self._dice.randint(1, 3)]}

    def _leaf(self) -> Any:
        dice = self._dice
        choices: list[Callable[[], Any]] = [
            lambda: {"type": dice.choice(("string", "integer", "number", "boolean", "null", "array", "object"))},
            lambda: {"enum": dice.sample(CONSTANTS, dice.randint(1, 3))}, lambda: {},
            lambda: {"$ref": self.value("$ref", 0)}, lambda: {"type": "integer", "minimum": 0, "maximum": 9},
            lambda: {"type": "string", "maxLength": 3}, lambda: {"type": ["null", "boolean"]},
        ]
        if self._draft > 4:
            choices += [lambda: dice.random() < 0.6, lambda: {"const": dice.choice(CONSTANTS)}]
        return dice.choice(choices)()

    def value(self, key: str, depth: int) -> Any:
        """A value that the keyword may have."""
        dice = self._dice
        match key:
            case "type":
                return dice.sample(TYPES, dice.randint(1, 3))
            case "enum":
                return dice.sample(CONSTANTS, dice.randint(1, 4))
            case "const" | "default":
                return dice.choice(CONSTANTS)
            case "allOf" | "anyOf" | "oneOf":
                return [self.schema(depth) for _ in range(dice.randint(1, 3))]
            case "prefixItems":
                return [self.schema(depth) for _ in range(dice.randint(1, 2))]
            case "items" if self._draft < 2020 and dice.random() < 0.3:
                return [self.schema(depth) for _ in range(dice.randint(1, 2))]
            case "properties":
                return {name: self.schema(depth) for name in dice.sample(NAMES, dice.randint(0, 3))}
            case "patternProperties":
                return {pattern: self.schema(depth) for pattern in dice.sample(list(PATTERNS), dice.randint(0, 2))}
            case "dependentSchemas":
                return {dice.choice(NAMES): self.schema(depth)}
            case "dependentRequired":
                return {dice.choice(NAMES): dice.sample(NAMES, dice.randint(0, 2))}
            case "dependencies":
                return {dice.choice(NAMES): dice.choice([[dice.choice(NAMES)], self._object_schema(depth)])}
            case "required":
                return dice.sample(NAMES, dice.randint(self._draft == 4, 2))
            case "propertyNames":
                return dice.choice(({"type": "string"}, {"enum": ["a", "b", "x-1"]}, {"pattern": "^[a-c]"},
                                    {"maxLength": 2}, {"minLength": 1, "maxLength": 3}, self.schema(depth)))
            case "pattern":
                return dice.choice(list(PATTERNS))
            case "format":
                return dice.choice(FORMATS)
            case "$ref":
                return dice.choice((f"#/{self._container}/T", f"#/{self._container}/U", f"#/{self._container}/R"))
            case "title":
                return "a title"
            case "uniqueItems":
                return dice.random() < 0.7
            case "exclusiveMinimum" | "exclusiveMaximum" if self._draft == 4:
                return dice.random() < 0.6
            case "multipleOf":
                return dice.choice((1, 2, 3, 5, 0.5, 0.25, 10))
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
                return dice.choice(NUMBERS)
            case _ if key.startswith(("min", "max")):
                return dice.choice((0, 0, 1, 1, 2, 3, 5))
            case _:
                return self._object_schema(depth) if self._draft == 4 and key == "not" else self.schema(depth)

    def _object_schema(self, depth: int) -> Any:
        made = self.schema(depth)
        return made if isinstance(made, dict) or self._draft > 4 else {}
