"""Finds schemas without a finite value: a schema that requires itself.

A value must fit several schemas at once, so the search is over sets of schemas. A set is finite if one of its
alternatives is: a type all of whose required items and properties are finite. Finite sets are found from the leaves on
(the least fixpoint). A set that is not found, and would be without the recursion, is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from drut.constrain.fixpoint import least_fixpoint
from drut.constrain.schema.canonical import type_of
from drut.constrain.schema.keywords import TYPES
from drut.constrain.schema.sets import Key, Schema, Set, Sets, TooManyError, item

MAX_SETS, MAX_WORK = 4000, 200_000  # beyond these limits a schema is assumed to be finite
SCALARS = frozenset(("null", "boolean", "integer", "number", "string"))


class Finite:
    """The search in one canonical schema and its definitions."""

    def __init__(self, root: Schema | bool, definitions: Mapping[str, Schema | bool]) -> None:
        self._root = root
        self._sets = Sets(root, definitions)
        self._needs: dict[Key, list[set[Key]]] = {}  # for each set, by alternative, the sets that it requires

    def endless(self) -> list[Schema] | None:
        """Returns the first set of schemas, from the root on, that is infinite only because of recursion."""
        self._explore()
        finite, most = least_fixpoint(self._needs), self._greatest()
        for key, needs in self._needs.items():
            if key not in finite and key in most and needs:
                return [schema for schema in self._sets[key] if isinstance(schema, dict)]
        return None

    def _explore(self) -> None:
        waiting = deque([self._sets.known((self._root,))])
        while waiting:
            key = waiting.popleft()
            if key in self._needs:
                continue
            needed: list[set[Key]] = []
            if len(self._needs) > MAX_SETS or self._sets.work > MAX_WORK:
                self._needs[key] = [set()]
                continue
            try:
                for atoms in self._sets.alternatives(self._sets[key]):
                    for required, others in self._children(atoms):
                        needed.append({self._sets.known(child) for child in required})
                        waiting += [*needed[-1], *(self._sets.known(child) for child in others)]
            except TooManyError:
                needed = [set()]
            self._needs[key] = needed

    def _greatest(self) -> set[Key]:
        """Returns the sets that no false schema empties."""
        alive = {key: len(alternatives) for key, alternatives in self._needs.items()}
        users: dict[Key, list[tuple[Key, int]]] = {}
        for key, alternatives in self._needs.items():
            for i, needed in enumerate(alternatives):
                for child in needed:
                    users.setdefault(child, []).append((key, i))
        dead, gone = [key for key, count in alive.items() if not count], set[tuple[Key, int]]()
        while dead:
            for user in users.get(dead.pop(), ()):
                if user in gone:
                    continue
                gone.add(user)
                alive[user[0]] -= 1
                dead += [] if alive[user[0]] else [user[0]]
        return {key for key, count in alive.items() if count}

    def _children(self, atoms: list[Schema]) -> Iterator[tuple[list[Set], list[Set]]]:
        """Yields for each type that may fit the sets that its parts need, and the sets of optional parts."""
        types = frozenset(TYPES)
        for schema in atoms:
            if "type" in schema:
                named = schema["type"]
                types &= _with_integers(frozenset([named] if isinstance(named, str) else named))
            for values in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
                if values is not None:  # enumerated values are finite
                    types &= _with_integers(frozenset(map(type_of, values)))
                    if types:
                        yield [], []
                    return
        if types & SCALARS:
            yield [], []
        if "array" in types and (parts := _of_array(atoms)) is not None:
            yield parts
        if "object" in types:
            yield from _of_object(atoms)


def _with_integers(types: frozenset[str]) -> frozenset[str]:
    return types | {"integer"} if "number" in types else types


def _of_array(atoms: list[Schema]) -> tuple[list[Set], list[Set]] | None:
    least = max((schema.get("minItems", 0) for schema in atoms), default=0)
    most = min((schema["maxItems"] for schema in atoms if "maxItems" in schema), default=least + 1)
    if least > most:
        return None
    longest = max(len(schema.get("prefixItems", ())) for schema in atoms) if atoms else 0
    sets = [tuple(item(schema, i) for schema in atoms) for i in range(min(longest, max(most, least)) + 1)]
    needed = min(least, len(sets))
    return sets[:needed], sets[needed:] if most else []


def _of_object(atoms: list[Schema]) -> Iterator[tuple[list[Set], list[Set]]]:
    """Yields the sets with each optional property in turn, if more properties are demanded than are required."""
    required = dict.fromkeys(name for schema in atoms for name in schema.get("required", ()))
    names = dict.fromkeys(name for schema in atoms for name in schema.get("properties", ()))
    needed = [tuple(_property(schema, name) for schema in atoms) for name in required]
    others = [tuple(_property(schema, name) for schema in atoms) for name in names if name not in required]
    others.append(tuple(schema.get("additionalProperties", True) for schema in atoms))
    others += [(value,) for schema in atoms for value in schema.get("patternProperties", {}).values()]
    if max((schema.get("minProperties", 0) for schema in atoms), default=0) <= len(required):
        yield needed, others
    else:
        yield from (([*needed, other], []) for other in others)


def _property(schema: Schema, name: str) -> Any:
    if name in schema.get("properties", {}):
        return schema["properties"][name]
    return True if "patternProperties" in schema else schema.get("additionalProperties", True)
