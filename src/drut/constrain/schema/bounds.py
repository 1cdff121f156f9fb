"""Checks limits of the library in a canonical schema: cyclic or deep references, and large multiples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from drut.constrain import limits, ways
from drut.constrain.schema.keywords import inside
from drut.errors import RequestError

Schema = dict[str, Any]
SAME_INSTANCE = ("allOf", "anyOf", "oneOf")  # their members apply to the same value as the schema itself
MAX_STEPS = 1 << 32  # the library can compute a common multiple with so many steps


def target(root: Schema, ref: str) -> Any:
    """Returns the schema that a canonical $ref leads to."""
    return root if ref == "#" else root["$defs"][ref.rpartition("/")[2]]


def check_chains(root: Schema) -> None:
    """Raises RequestError for chains of references that may get too long, because the library follows them by
    recursion."""
    depths: dict[int, int] = {id(True): 1, id(False): 1}

    def depth(schema: Any) -> int:
        known = depths.get(id(schema))
        if known is None:
            members = [member for _, member in inside(schema)]
            known = depths[id(schema)] = 1 + max(map(depth, members), default=0)
        return known

    targets = [*root.get("$defs", {}).values(), root]
    if sum(map(depth, targets)) > limits.MAX_CHAIN:
        raise RequestError(f"schemas behind $ref are nested more than {limits.MAX_CHAIN} deep in total")


def check_cycles(root: Schema, where: Callable[[Schema], str]) -> None:
    """Raises RequestError for a $ref that leads back to itself without entering an item or a property."""
    finished: set[int] = set()
    for start in (root, *root.get("$defs", {}).values()):
        path: set[int] = set()  # schemas that apply to the same value
        stack: list[tuple[Any, bool]] = [(start, False)]
        while stack:
            schema, leaving = stack.pop()
            if not isinstance(schema, dict) or id(schema) in finished:
                continue
            if leaving:
                path.discard(id(schema))
                finished.add(id(schema))
                continue
            if id(schema) in path:
                raise RequestError(f"a $ref leads back to itself, at {where(schema)}")
            path.add(id(schema))
            stack.append((schema, True))
            members = [target(root, schema["$ref"])] if "$ref" in schema else []
            for key in SAME_INSTANCE:
                members += schema.get(key, ())
            stack += [(member, False) for member in members]


def check_patterns(schemas: Iterable[Schema]) -> None:
    """Raises RequestError for more patterns of names than the library can compare in a short time."""
    patterns = [pattern for schema in schemas for pattern in schema.get("patternProperties", ())]
    if len(patterns) > limits.MAX_PATTERNS:
        raise RequestError(f"patternProperties: {len(patterns)} patterns in all; at most {limits.MAX_PATTERNS} are "
                           "allowed")
    if sum(map(ways.of_pattern, set(patterns))) > ways.MAX_OF_NAMES:
        raise RequestError("patternProperties: the patterns are too long to be compared with each other, at #")


def check_multiples(schemas: Iterable[Schema]) -> None:
    """Raises RequestError for values of multipleOf with too large a common multiple, in case one number must fit all of
    them."""
    values = {Decimal(repr(schema["multipleOf"])) for schema in schemas if "multipleOf" in schema}
    scale = max((-int(value.as_tuple().exponent) for value in values), default=0)
    whole = sorted(int(value.scaleb(max(0, scale))) for value in values)
    common = 1
    for value in whole:
        if common * value >= MAX_STEPS:
            raise RequestError("values of multipleOf whose common multiple is too large are not supported, at #")
        common = math.lcm(common, value)
