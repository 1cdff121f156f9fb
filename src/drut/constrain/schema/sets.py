"""Holds sets of canonical schemas that one value must fit at once, and finds the alternatives of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]
MAX_ALTERNATIVES = 256
Set = tuple[Any, ...]  # a set of schemas
Key = frozenset[int]


class TooManyError(Exception):
    """A set has too many alternatives to visit them all."""


class Sets:
    """The sets in one canonical schema and its definitions."""

    def __init__(self, root: Schema | bool, definitions: Mapping[str, Schema | bool]) -> None:
        self._root, self._definitions = root, definitions
        self._sets: dict[Key, Set] = {}
        self.work = 0  # schemas visited

    def __getitem__(self, key: Key) -> Set:
        return self._sets[key]

    def known(self, schemas: Set) -> Key:
        """Returns the key of a set."""
        self.work += len(schemas)
        led = tuple(map(self._led, schemas))
        key = frozenset(id(schema) if isinstance(schema, dict) else int(schema) for schema in led)
        self._sets.setdefault(key, led)
        return key

    def alternatives(self, schemas: Set) -> Iterator[list[Schema]]:
        """Yields sets of schemas without $ref, allOf, anyOf and oneOf; together they are equivalent to `schemas`.

        TooManyError if there are more than MAX_ALTERNATIVES.
        """
        stack: list[tuple[list[Any], list[Schema], frozenset[str]]] = [(list(schemas), [], frozenset())]
        count = 0
        while stack:
            pending, atoms, seen = stack.pop()
            count += 1
            if count > MAX_ALTERNATIVES * 8 or len(stack) > MAX_ALTERNATIVES:
                raise TooManyError
            if not pending:
                yield atoms
                continue
            schema, rest = pending[0], pending[1:]
            if schema is False:
                continue
            if schema is True:
                stack.append((rest, atoms, seen))
                continue
            rest += schema.get("allOf", ())
            ref = schema.get("$ref")
            if ref is not None and ref not in seen:
                rest.append(self._target(ref))
                seen = seen | {ref}
            options = [[*rest]]
            for key in ("anyOf", "oneOf"):
                if key in schema:
                    options = [[*option, member] for option in options for member in schema[key]]
            if len(options) > MAX_ALTERNATIVES:
                raise TooManyError
            stack += [(option, [*atoms, schema], seen) for option in reversed(options)]

    def all_at_once(self, schemas: Set) -> list[Schema]:
        """Returns all schemas that `alternatives` visits, as if one value had to fit them all."""
        found: dict[int, Schema] = {}
        stack = list(schemas)
        while stack:
            schema = stack.pop()
            if isinstance(schema, dict) and id(schema) not in found:
                found[id(schema)] = schema
                stack += [self._target(schema["$ref"])] if "$ref" in schema else []
                for key in ("allOf", "anyOf", "oneOf"):
                    stack += schema.get(key, ())
        return list(found.values())

    def _led(self, schema: Any) -> Any:
        """Returns the target of a schema that is only a $ref."""
        while isinstance(schema, dict) and schema.keys() <= {"$ref", "$comment"} and "$ref" in schema:
            schema = self._target(schema["$ref"])
        return schema

    def _target(self, ref: str) -> Any:
        return self._root if ref == "#" else self._definitions[ref.rpartition("/")[2]]


def item(schema: Schema, index: int) -> Any:
    """Returns the schema that a schema without $ref and allOf has for an item."""
    prefix = schema.get("prefixItems", ())
    return prefix[index] if index < len(prefix) else schema.get("items", True)
