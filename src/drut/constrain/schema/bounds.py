"""What the library cannot bear in a canonical schema: references that go round or too deep, and too large steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from drut.constrain import limits
from drut.constrain.schema.keywords import inside
from drut.errors import RequestError

Schema = dict[str, Any]
SAME_INSTANCE = ("allOf", "anyOf", "oneOf")  # their members speak of the value that the schema itself speaks of
MOST_STEPS = 1 << 32  # the library computes a common multiple with so many


def target(root: Schema, ref: str) -> Any:
    """What a canonical $ref leads to."""
    return root if ref == "#" else root["$defs"][ref.rpartition("/")[2]]


def check_chains(root: Schema) -> None:
    """RequestError for chains of references that may get too long: the library follows them by recursion."""
    depths: dict[int, int] = {id(True): 1, id(False): 1}

    def depth(schema: Any) -> int:
        known = depths.get(id(schema))
        if known is None:
            members = [member for _, member in inside(schema)]
            known = depths[id(schema)] = 1 + max(map(depth, members), default=0)
        return known

    targets = [*root.get("$defs", {}).values(), root]
    if sum(map(depth, targets)) > limits.MOST_CHAIN:
        raise RequestError(f"what $ref leads to is nested more than {limits.MOST_CHAIN} deep in all")


def check_cycles(root: Schema, where: Callable[[Schema], str]) -> None:
    """RequestError for a $ref that leads back to itself without going into the value."""
    finished: set[int] = set()
    for start in (root, *root.get("$defs", {}).values()):
        path: set[int] = set()  # of schemas that all speak of one value
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
    """RequestError for more patterns of names than the library compares soon."""
    count = sum(len(schema.get("patternProperties", ())) for schema in schemas)
    if count > limits.MOST_PATTERNS:
        raise RequestError(f"patternProperties: {count} patterns in all; at most {limits.MOST_PATTERNS} are allowed")


def check_multiples(schemas: Iterable[Schema]) -> None:
    """RequestError for values of multipleOf whose common multiple is too large, should one number meet them all."""
    values = {Decimal(repr(schema["multipleOf"])) for schema in schemas if "multipleOf" in schema}
    scale = max((-int(value.as_tuple().exponent) for value in values), default=0)
    whole = sorted(int(value.scaleb(max(0, scale))) for value in values)
    common = 1
    for value in whole:
        if common * value >= MOST_STEPS:
            raise RequestError("values of multipleOf whose common multiple is too large are not supported, at #")
        common = math.lcm(common, value)
