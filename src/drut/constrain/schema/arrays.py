"""Keywords of arrays in canonical form."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drut.constrain.schema.keywords import MAX_COUNT, TYPES, Made, count
from drut.constrain.schema.references import Path
from drut.errors import RequestError

if TYPE_CHECKING:
    from drut.constrain.schema.canonical import Canonical

Schema = dict[str, Any]
MAX_ARRANGEMENTS = 400  # maximum of arrays of different items that are enumerated
APPLICATORS = frozenset(("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "not",
                         "dependentSchemas", "dependencies", "contains"))  # these may evaluate siblings' items


def made(canonical: Canonical, given: Mapping[str, Any], path: Path) -> Made | None:
    """Returns the keywords of arrays, and further schemas that arrays must fit; None if no array fits."""
    prefix, rest = _items(canonical, given, path)
    low, high = count(given, "minItems"), count(given, "maxItems", math.inf)
    contained = _contained(canonical, given, path)
    if contained is None:
        return None
    low, high = max(low, contained[0]), min(high, contained[1])
    if rest is False:
        high = min(high, len(prefix))
    if False in [member for member in prefix[: int(min(high, len(prefix)))] if member is False]:
        high = min(high, next(i for i, member in enumerate(prefix) if member is False))
    if low > high:
        return None
    if high <= len(prefix):
        prefix, rest = prefix[: int(high)], False
    while prefix and prefix[-1] is True and rest is True:
        prefix.pop()
    simple: Schema = {"prefixItems": prefix} if prefix else {}
    if rest is not True and high > len(prefix):
        simple["items"] = rest
    if given.get("uniqueItems") and high > 1:
        return _unique(prefix, canonical.plain(rest) if isinstance(rest, dict) else rest, low, high)
    if low:
        simple["minItems"] = low
    if high <= MAX_COUNT:
        simple["maxItems"] = int(high)
    return simple, []


def _items(canonical: Canonical, given: Mapping[str, Any], path: Path) -> tuple[list[Any], Any]:
    """Returns the schemas of the first items and of the others, which differ between drafts."""
    draft, items = canonical.draft, given.get("items", True)
    first, others = "prefixItems", "items"
    if isinstance(items, list):
        if draft == 2020:
            raise RequestError("items must be a schema in draft 2020: write prefixItems")
        if "prefixItems" in given:
            raise RequestError("items is a list together with prefixItems, which is ambiguous")
        first, others = "items", "additionalItems"
    elif "additionalItems" in given and "prefixItems" in given:
        raise RequestError("additionalItems together with prefixItems: they belong to different drafts; write items")
    prefix = [canonical.schema(member, (*path, first, str(i))) for i, member in enumerate(given.get(first, ()))]
    if others in given:
        return prefix, canonical.schema(given[others], (*path, others))
    return prefix, unevaluated(canonical, given, path, "unevaluatedItems")


def unevaluated(canonical: Canonical, given: Mapping[str, Any], path: Path, key: str) -> Any:
    """Returns the schema for all items or properties that are not named, if no sibling keyword may evaluate them."""
    schema = canonical.schema(given[key], (*path, key)) if key in given else True
    if schema is not True and not given.keys().isdisjoint(APPLICATORS):
        raise RequestError(f"the keyword {key!r} is not supported together with {min(given.keys() & APPLICATORS)!r}")
    return schema


def _contained(canonical: Canonical, given: Mapping[str, Any], path: Path) -> tuple[float, float] | None:
    """Returns the bounds of the number of items that `contains` implies. Raises RequestError if it implies more."""
    if "contains" not in given:
        return 0, math.inf
    low, high = count(given, "minContains", 1), count(given, "maxContains", math.inf)
    schema = canonical.schema(given["contains"], (*path, "contains"))
    if low > high or (schema is False and low > 0):
        return None
    if schema is True:
        return low, high
    if schema is False or (low == 0 and high == math.inf):
        return 0, math.inf
    raise RequestError("the keyword 'contains' is not supported")


def _unique(prefix: list[Any], rest: Any, low: int, high: float) -> Made | None:
    """Returns all arrays of different items, if items have few values. Raises RequestError if they have many."""
    values = few(rest) if not prefix else None
    if values is None or sum(math.perm(len(values), n) for n in range(len(values) + 1)) > MAX_ARRANGEMENTS:
        raise RequestError("the keyword 'uniqueItems' is supported where items are an enum of at most 5 values")
    sizes = range(low, int(min(high, len(values))) + 1)
    arrays = [list(chosen) for size in sizes for chosen in itertools.permutations(values, size)]
    if not arrays:
        return None
    others = [kind for kind in TYPES if kind not in ("array", "integer")]
    return {}, [{"anyOf": [{"type": others}, {"enum": arrays}]}]


def few(schema: Any) -> list[Any] | None:
    """Returns the values that fit a canonical schema, if it lists them all; else None."""
    if not isinstance(schema, dict):
        return [] if schema is False else None
    if schema.keys() <= {"type", "enum"} and "enum" in schema:
        values = schema["enum"]
    elif schema.keys() <= {"type", "const"} and "const" in schema:
        values = [schema["const"]]
    elif schema in ({"type": "boolean"}, {"type": "null"}):
        values = [True, False] if schema["type"] == "boolean" else [None]
    else:
        return None
    different: list[Any] = []
    for value in values:
        if not any(same(value, other) for other in different):
            different.append(value)
            if len(different) > 5:
                return None
    return different


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool) or type(one) is not type(other):
        numeric = isinstance(one, int | float) and isinstance(other, int | float)
        mixed = numeric and not isinstance(one, bool) and not isinstance(other, bool)
        return bool(one == other) if mixed else one is other
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
