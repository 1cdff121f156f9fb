"""Keywords of objects in canonical form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drut.constrain import limits
from drut.constrain.patterns import translated
from drut.constrain.schema.arrays import unevaluated
from drut.constrain.schema.keywords import Made, count
from drut.constrain.schema.references import Path, pointer
from drut.constrain.schema.strings import lengths
from drut.errors import RequestError

if TYPE_CHECKING:
    from drut.constrain.schema.canonical import Canonical

Schema = dict[str, Any]
MAX_DEPENDENT = 4  # maximum of names on which others depend: each doubles the grammar


def made(canonical: Canonical, given: Mapping[str, Any], path: Path) -> Made | None:
    """Returns the keywords of objects, and further schemas that objects must fit; None if no object fits."""
    named = {name: canonical.schema(schema, (*path, "properties", name))
             for name, schema in given.get("properties", {}).items()}
    patterns = _patterns(canonical, given, path)
    rest = _rest(canonical, given, path)
    required = list(dict.fromkeys(given.get("required", ())))
    low, high = count(given, "minProperties"), count(given, "maxProperties", math.inf)
    allowed = sum(schema is not False for schema in named.values()) if rest is False and not patterns else math.inf
    if max(low, len(required)) > min(high, allowed) or any(named.get(name) is False for name in required):
        return None
    more = [*_names(canonical, given, path), *_dependent(canonical, given, path)]
    if high == 0 or (rest is False and not patterns and not allowed):
        return {"additionalProperties": False}, more
    _check_counts(named, required, low, high, closed=rest is False and not patterns)
    simple: Schema = {"properties": named} if named else {}
    if patterns:
        simple["patternProperties"] = patterns
    if rest is not True:
        simple["additionalProperties"] = rest
    if required:
        simple["required"] = required
    if low > len(required):
        simple["minProperties"] = low
    if high < allowed and high <= limits.MAX_NODES:
        simple["maxProperties"] = int(high)
    return simple, more


def _patterns(canonical: Canonical, given: Mapping[str, Any], path: Path) -> Schema:
    found: Schema = {}
    for pattern, schema in given.get("patternProperties", {}).items():
        key, value = translated(pattern), canonical.schema(schema, (*path, "patternProperties", pattern))
        found[key] = {"allOf": [found[key], value]} if key in found else value
        if isinstance(value, dict):
            value["$comment"] = pointer((*path, "patternProperties", pattern))  # the pattern itself was rewritten
    return found


def _rest(canonical: Canonical, given: Mapping[str, Any], path: Path) -> Any:
    if "additionalProperties" in given:
        return canonical.schema(given["additionalProperties"], (*path, "additionalProperties"))
    return unevaluated(canonical, given, path, "unevaluatedProperties")


def _check_counts(named: Schema, required: list[str], low: int, high: float, *, closed: bool) -> None:
    """Raises RequestError for numbers of properties that no grammar can check, because it does not store the names
    that have come."""
    optional = sum(schema is not False and name not in required for name, schema in named.items())
    least, most = max(0, low - len(required)), high - len(required)
    if optional and (least or most < optional + (0 if closed else math.inf)):
        if closed and least <= 1 and most in (1, math.inf):
            return
        if closed and not least and most >= optional:
            return
        key = "minProperties" if least else "maxProperties"
        raise RequestError(f"{key} is not supported together with properties that are not required")
    if least > 1:
        raise RequestError("minProperties is supported up to one more than what is required: names may come twice")


def _names(canonical: Canonical, given: Mapping[str, Any], path: Path) -> list[Schema]:
    """Returns `propertyNames` as schemas of objects with only these names."""
    if "propertyNames" not in given:
        return []
    schema = canonical.schema(given["propertyNames"], (*path, "propertyNames"))
    facets = canonical.plain(schema)
    kinds = facets.pop("type", ["string"])
    if schema is False or "string" not in ([kinds] if isinstance(kinds, str) else kinds):
        return [{"additionalProperties": False}]
    facets = {key: value for key, value in facets.items() if key in ("enum", "const", "pattern", "minLength",
                                                                      "maxLength", "format") or _unclear(key)}
    if "enum" in facets or "const" in facets:
        values = facets.pop("enum", None) or [facets["const"]]
        if "const" in facets:
            values = [value for value in values if value == facets["const"]]
        low, high = facets.pop("minLength", 0), facets.pop("maxLength", math.inf)
        if facets.keys() - {"const"}:
            raise RequestError("propertyNames: pattern or format together with enum is not supported")
        names = [v for v in values if isinstance(v, str) and low <= len(v) <= high]
        if len(names) > limits.MAX_PROPERTIES:
            raise RequestError(f"propertyNames of {len(names)} names; at most {limits.MAX_PROPERTIES} are allowed")
        return [{"properties": dict.fromkeys(names, True), "additionalProperties": False}]
    if not facets:
        return []
    if "format" in facets or ("pattern" in facets and len(facets) > 1):
        raise RequestError("propertyNames: one of enum, const, pattern and lengths is supported")
    pattern = facets.get("pattern") or lengths(facets.get("minLength", 0), facets.get("maxLength"))
    return [{"patternProperties": {pattern: True}, "additionalProperties": False}]


def _unclear(key: str) -> bool:
    if key in ("allOf", "anyOf", "oneOf", "$ref"):
        raise RequestError(f"propertyNames: {key} is not supported")
    return False


def _dependent(canonical: Canonical, given: Mapping[str, Any], path: Path) -> list[Schema]:
    """Returns dependencies on a name as alternatives: without the name, or with all that it requires."""
    found: list[Schema] = []
    for key in ("dependentRequired", "dependentSchemas", "dependencies"):
        for name, brought in given.get(key, {}).items():
            if isinstance(brought, list):
                names = [other for other in dict.fromkeys(brought) if other not in given.get("required", ())]
                with_it: Any = {"required": [name, *(n for n in names if n != name)]} if set(names) - {name} else True
            else:
                schema = canonical.schema(brought, (*path, key, name))
                with_it = schema if isinstance(schema, bool) else {
                    "type": "object", "properties": {name: True}, "required": [name], "allOf": [schema]}
            if with_it is not True:
                without: Schema = {"properties": {name: False}}
                found.append({"anyOf": [without, with_it]} if with_it else without)
    if len(found) > MAX_DEPENDENT:
        raise RequestError(f"dependencies on more than {MAX_DEPENDENT} names are not supported")
    return found
