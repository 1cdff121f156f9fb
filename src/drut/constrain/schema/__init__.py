"""Prepares a JSON schema of any draft for the library: within limits, every keyword exact or refused by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from drut.constrain import limits
from drut.constrain.schema import bounds, keywords
from drut.constrain.schema.alternatives import Alternatives
from drut.constrain.schema.canonical import Canonical
from drut.constrain.schema.drafts import draft_of
from drut.constrain.schema.finite import Finite
from drut.constrain.schema.meetings import Meetings
from drut.constrain.schema.references import References, parts, pointer
from drut.errors import RequestError

__all__ = ["parts", "prepared"]
# At most one space between the tokens of JSON, so that no model can pad without end.
OPTIONS: Mapping[str, object] = {"whitespace_pattern": r"\x20?", "lenient": False, "coerce_one_of": False}
# Without \u a string has one spelling: else a name could come again, in another spelling, as an additional property.
PLAIN_ESCAPES: Mapping[str, object] = {"json_allowed_escapes": 'nrbtf\\"'}
UNWRITTEN = re.compile(r"(?<!\\)(\\\\)*\\u00|\x7f")  # characters that are not generated, as JSON writes them


def prepared(schema: Mapping[str, Any] | bool | str, name: str = "schema") -> str:
    """Returns the schema for the library, a JSON text. Raises RequestError with the keyword at fault and its path."""
    text = schema if isinstance(schema, str) else limits.write_json(name, schema)
    limits.check_text(name, text, limits.MAX_BYTES)
    root = limits.read_json(name, text)
    if not isinstance(root, dict | bool):
        raise RequestError(f"{name} must be an object, not {type(root).__name__}")
    limits.check_size(name, root)
    try:
        return limits.write_json(name, _ready(root))
    except RequestError as error:
        raise RequestError(f"{name}: {error}") from None


def _ready(root: dict[str, Any] | bool) -> dict[str, Any]:
    if isinstance(root, bool):
        if not root:
            raise RequestError("false allows no value")
        return {"x-guidance": OPTIONS}
    draft = draft_of(root)
    for path, part in parts(root):
        if isinstance(part, dict):
            try:
                keywords.check(part, draft)
            except RequestError as error:
                raise RequestError(f"{error}, at {pointer(path)}") from None
    made = Canonical(root, draft, References(root, draft))
    whole: dict[str, Any] = {**made.root} if isinstance(made.root, dict) else {}
    if isinstance(made.root, dict):
        made.paths[id(whole)] = ()
    if made.definitions:
        whole["$defs"] = made.definitions
    _check(whole, made)
    bounds.check_chains(whole)
    if not any(map(_names_and_more, _all(whole))):
        return {**whole, "x-guidance": OPTIONS}
    for part in _all(whole):
        for key in ("const", "enum"):
            if UNWRITTEN.search(limits.write_json(key, part.get(key))):
                raise RequestError(f"{key}: a control character is not supported where an object may have other names, "
                                   f"at {pointer(made.paths.get(id(part), ()))}")
    return {**whole, "x-guidance": {**OPTIONS, **PLAIN_ESCAPES}}


def _check(whole: dict[str, Any], made: Canonical) -> None:
    """Checks that need the whole schema: cyclic references, patterns of one string, members of oneOf, and values
    without an end."""

    def where(part: dict[str, Any]) -> str:
        return pointer(made.paths.get(id(part), ()))

    bounds.check_cycles(whole, where)
    bounds.check_multiples(_all(whole))
    bounds.check_patterns(_all(whole))
    Meetings(whole, made.definitions).check(_all(whole), where)
    alternatives = Alternatives(whole, made.definitions)
    for part in list(_all(whole)):
        if "oneOf" in part:
            try:
                alternatives.settle(part)
            except RequestError as error:
                raise RequestError(f"{error}, at {where(part)}") from None
    if endless := Finite(whole, made.definitions).endless():
        path = next((made.paths[id(part)] for part in endless if id(part) in made.paths), ())
        raise RequestError(f"what is required leads back to itself, so that no value has an end, at {pointer(path)}")


def _all(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the canonical schemas, each once."""
    return (part for _, part in parts(whole) if isinstance(part, dict))


def _names_and_more(schema: dict[str, Any]) -> bool:
    """Whether the schema names properties and allows additional ones."""
    named = schema.keys() & {"properties", "patternProperties", "required"}
    return bool(named) and schema.get("additionalProperties") is not False
