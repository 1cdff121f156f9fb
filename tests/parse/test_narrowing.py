"""Schemas of arguments are narrowed so that they end; a value that fits also fits the client's schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.constrain import Constraint
from drut.parse.narrowing import FREE, Bounds, bounded, closed

BOUNDS = Bounds(chars=5, items=2)
TEXT: dict[str, Any] = {"type": "string"}
LIST: dict[str, Any] = {"type": "array"}


def test_no_properties_are_invented() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": inner}, "c": {"type": "object"}}}
    made = closed(schema)
    assert made["additionalProperties"] is False  # type: ignore[index]
    assert made["properties"]["a"]["items"]["additionalProperties"] is False  # type: ignore[index]
    assert made["properties"]["c"] == {"type": "object"}  # type: ignore[index]
    for said in ({"additionalProperties": True}, {"anyOf": [inner]}, {"patternProperties": {"^x": {}}}):
        assert closed(schema | said) == schema | said | {"properties": made["properties"]}  # type: ignore[index]
    assert closed(True) is True


@pytest.mark.parametrize(("schema", "made"), [
    (TEXT, {**TEXT, "maxLength": 5}), (LIST, {**LIST, "maxItems": 2}),
    ({"type": ["null", "string", "array"]}, {"type": ["null", "string", "array"], "maxLength": 5, "maxItems": 2}),
    ({**TEXT, "maxLength": 50}, {**TEXT, "maxLength": 50}), ({**LIST, "maxItems": 50}, {**LIST, "maxItems": 50}),
    ({**TEXT, "pattern": "^a*$"}, {**TEXT, "pattern": "^a*$"}), ({**TEXT, "enum": ["a long one"]},) * 2,
    ({**TEXT, "minLength": 9}, {**TEXT, "minLength": 9, "maxLength": 9}),
    ({"type": "integer"},) * 2, (True,) * 2, ({},) * 2, ({"oneOf": [TEXT, LIST]},) * 2])
def test_what_has_no_maximum_gets_one(schema: Any, made: Any) -> None:
    assert bounded(schema, BOUNDS) == made
    assert bounded(schema, FREE) == schema


@pytest.mark.parametrize("around", [
    lambda s: {"properties": {"a": s}}, lambda s: {"items": s}, lambda s: {"prefixItems": [s]},
    lambda s: {"additionalProperties": s}, lambda s: {"anyOf": [{"type": "null"}, s]}, lambda s: {"allOf": [s]},
    lambda s: {"$defs": {"a": s}, "$ref": "#/$defs/a"}, lambda s: {"patternProperties": {"^a": s}}])
def test_wherever_it_stands(around: Any) -> None:
    assert bounded(around(around(TEXT)), BOUNDS) == around(around({**TEXT, "maxLength": 5}))


def test_no_minimum_is_left_without_room() -> None:
    """Also if it is a sibling of what gets the bound, and not inside it."""
    far = {"allOf": [TEXT, {"minLength": 9}], "$defs": {"a": {**LIST, "prefixItems": [TEXT, TEXT, TEXT]}}}
    made = bounded(far, BOUNDS)
    assert made["allOf"][0]["maxLength"] == 9  # type: ignore[index]
    assert made["$defs"]["a"]["maxItems"] == 3  # type: ignore[index]


SCHEMAS = st.recursive(
    st.sampled_from([TEXT, {**TEXT, "minLength": 2}, {"type": "integer"}, {"type": ["string", "null"]}]),
    lambda inner: st.one_of(
        st.builds(lambda s: {**LIST, "items": s}, inner),
        st.builds(lambda s: {"type": "object", "properties": {"a": s}}, inner),
        st.builds(lambda s, t: {"anyOf": [s, t]}, inner, inner), st.builds(lambda s: {"oneOf": [s]}, inner)),
    max_leaves=6)
VALUES = st.recursive(st.sampled_from(["", "a", "abc", "abcdefgh", 1, None]), lambda inner: st.one_of(
    st.lists(inner, max_size=4), st.builds(lambda v: {"a": v}, inner)), max_leaves=6)


@settings(deadline=None, max_examples=200)
@given(SCHEMAS, VALUES)
def test_what_fits_fits_the_schema_itself(schema: dict[str, Any], value: Any) -> None:
    if jsonschema.Draft202012Validator(bounded(closed(schema), BOUNDS)).is_valid(value):
        jsonschema.validate(value, schema)


def test_the_grammar_knows_the_bound() -> None:
    made = Constraint.json_schema(bounded({"type": "object", "properties": {"a": TEXT}}, BOUNDS))  # type: ignore[arg-type]
    assert json.loads(made.source)["properties"]["a"]["maxLength"] == 5


@pytest.mark.parametrize("more", [{"required": ["a", "b"]}, {"minProperties": 2}])
def test_properties_that_are_needed_and_not_named_keep_their_room(more: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": TEXT}, **more}
    assert closed(schema) == schema
