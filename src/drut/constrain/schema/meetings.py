"""Bounds the patterns that one string must match, since the library has no limit that ends their intersection.

Patterns apply to one string through allOf, $ref and the siblings of anyOf, and through the same property or item of
several schemas of one object or array. The search overestimates: if a set of schemas has too many alternatives, all of
them are assumed to apply at once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from drut.constrain import ways
from drut.constrain.schema.sets import Key, Schema, Set, Sets, TooManyError, item
from drut.errors import RequestError

MAX_SETS, MAX_WORK = 4000, 400_000
FORMAT_WAYS = 8  # assumed for a format that the library implements


class Meetings:
    """The search in one canonical schema and its definitions."""

    def __init__(self, root: Schema | bool, definitions: Mapping[str, Schema | bool]) -> None:
        self._root, self._sets = root, Sets(root, definitions)
        self._ways: dict[str, int] = {}  # by pattern
        self._further: dict[tuple[int, bool], Any] = {}  # by schema and whether it names the property

    def check(self, schemas: Iterable[Schema], where: Callable[[Schema], str]) -> None:
        """Raises RequestError with the path of the first of the patterns if one string must match too many.

        `schemas`: all schemas, in any order; `where` gives the path of one.
        """
        if self._together(schemas) <= ways.MAX_WAYS:  # even if all applied to one string
            return
        found, uses, several = dict[Key, int](), Counter[Key](), 0
        waiting = deque([self._sets.known((self._root,))])
        while waiting:
            key = waiting.popleft()
            uses[key] += 1
            if key in found:
                continue
            found[key] = 0
            several += len(self._sets[key]) > 1
            for atoms in self._alternatives(key):
                found[key] += self._checked(atoms, where)
                for child in _children(atoms, self._further):
                    if several > MAX_SETS or self._sets.work > MAX_WORK:
                        raise RequestError("pattern: too many combinations of schemas to determine which patterns "
                                           "apply to one string, at #")
                    waiting.append(self._sets.known(child))
                    self._sets.work += len(atoms)
        if sum(uses[key] * count for key, count in found.items()) > ways.MAX_IN_ALL:
            raise RequestError("pattern: the intersections of patterns are too costly in all, at #")

    def _alternatives(self, key: Key) -> Iterator[list[Schema]]:
        try:
            yield from self._sets.alternatives(self._sets[key])
        except TooManyError:
            yield self._sets.all_at_once(self._sets[key])

    def _checked(self, atoms: list[Schema], where: Callable[[Schema], str]) -> int:
        """Returns the ways of the patterns that one string must match. RequestError if they are too many."""
        if (found := self._together(atoms)) > ways.MAX_WAYS:
            held = [schema for schema in atoms if "pattern" in schema or "format" in schema]
            raise RequestError(f"pattern: {len(held)} patterns and formats apply to one string, and their intersection "
                               f"is too costly; {ways.BOUND}, at {where(held[0])}")
        return found

    def _together(self, schemas: Iterable[Schema]) -> int:
        """Returns the ways of the intersection of all patterns and formats; equal ones count once."""
        found: dict[str, int] = {}
        for schema in schemas:
            if (pattern := schema.get("pattern")) is not None:
                if pattern not in self._ways:
                    self._ways[pattern] = ways.of_pattern(pattern)
                found[pattern] = self._ways[pattern]
            if "format" in schema:
                found[f"format {schema['format']}"] = FORMAT_WAYS
        return ways.of_all(found.values())


def _children(atoms: list[Schema], further: dict[tuple[int, bool], Any]) -> Iterator[Set]:
    """Yields for each item and property the schemas that it must fit."""
    longest = max((len(schema.get("prefixItems", ())) for schema in atoms), default=0)
    for i in range(longest + 1):
        yield _saying(item(schema, i) for schema in atoms)
    names = dict.fromkeys(name for schema in atoms for name in schema.get("properties", ()))
    for name in names:
        yield _saying(member for schema in atoms for member in _named(schema, name, further))
    keys = dict.fromkeys(key for schema in atoms for key in schema.get("patternProperties", ()))
    for key in keys:  # no name matches two of one object
        yield _saying(schema["patternProperties"][key] if key in schema.get("patternProperties", ())
                      else schema.get("additionalProperties", True) for schema in atoms)
    yield _saying(schema.get("additionalProperties", True) for schema in atoms)


def _saying(members: Iterable[Any]) -> Set:
    return tuple(member for member in members if member is not True)


def _named(schema: Schema, name: str, further: dict[tuple[int, bool], Any]) -> list[Any]:
    """Returns the schemas of a property. The names are not matched: any one of patternProperties may apply."""
    named = name in schema.get("properties", {})
    known = (id(schema), named)
    if known not in further:
        rest = True if named else schema.get("additionalProperties", True)
        patterns = list(schema.get("patternProperties", {}).values())
        further[known] = {"anyOf": [*patterns, rest]} if patterns else rest
    return [schema["properties"][name], further[known]] if named else [further[known]]
