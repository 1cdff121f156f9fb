"""JSON schemas of all drafts: what keywords mean together, or the keyword and path that are refused."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest

from drut.constrain import Constraint
from drut.errors import RequestError
from tests.constrain.schema_maker import URIS
from tests.constrain.walking import Walker

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}
LETTERS = {"enum": ["a", "b"]}


def accepts(walker: Walker, schema: Any, value: Any) -> bool:
    text = value if isinstance(value, str) and value[:1] == "\x00" else json.dumps(value, ensure_ascii=False)
    return walker.accepts(Constraint.json_schema(schema), text.removeprefix("\x00"))


def raw(text: str) -> str:
    """A JSON text as it is."""
    return "\x00" + text


def refusal(walker: Walker, schema: Any) -> str:
    with pytest.raises(RequestError) as error:
        walker.grammars.check(Constraint.json_schema(schema))
    return str(error.value)


# Values of keywords that ask for nothing, and a value that is accepted with them and refused without the rest.
NEUTRAL: list[dict[str, Any]] = [
    {"uniqueItems": False}, {"uniqueItems": True, "maxItems": 1}, {"minItems": 0}, {"minLength": 0},
    {"minProperties": 0}, {"required": []}, {"properties": {}}, {"patternProperties": {}},
    {"additionalProperties": True}, {"items": True},
    {"propertyNames": {"type": "string"}}, {"propertyNames": True}, {"propertyNames": {}}, {"not": False},
    {"if": {"minLength": 3}}, {"then": False}, {"if": {"minLength": 3}, "then": True, "else": {}},
    {"unevaluatedItems": True}, {"unevaluatedProperties": {}}, {"dependentRequired": {}},
    {"dependentRequired": {"a": []}},
    {"dependentRequired": {"a": ["a"]}}, {"dependentSchemas": {"a": True}}, {"dependencies": {"a": []}},
    {"contains": {"minLength": 3}, "minContains": 0}, {"minContains": 2}, {"maxContains": 0},
    {"additionalItems": False},
    {"format": "password"}, {"format": "int32"}, {"allOf": [True, {}]}, {"anyOf": [{"minLength": 9}, {}]},
    {"oneOf": [{}, False]}, {"multipleOf": 1}, {"pattern": ""}, {"title": "t", "description": None, "x-own": 1},
    {"discriminator": {"propertyName": "a"}}, {"$anchor": "here"}, {"$comment": "c"}, {"maxLength": 10**12},
]  # fmt: skip


@pytest.mark.parametrize("keywords", NEUTRAL, ids=json.dumps)
def test_what_asks_for_nothing_is_taken(walker: Walker, keywords: dict[str, Any]) -> None:
    for value in ("ab", 3, None, {"a": 1}):
        assert accepts(walker, {"type": ["string", "integer", "null", "object"], **keywords}, value)
    assert not accepts(walker, {"type": ["string", "integer", "null", "object"], **keywords}, True)


MEANINGS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"prefixItems": [{"const": 7}], "minItems": 1, "maxItems": 1, "type": "array"}, [[7]], [[8], [], [7, 7]]),
    ({"items": [{"const": 7}], "additionalItems": False, "type": "array"}, [[7], []], [[8], [7, 1]]),
    ({"items": [{"const": 7}], "additionalItems": {"type": "null"}}, [[7], [7, None], 3], [[8], [7, 1]]),
    ({"items": {"type": "null"}, "additionalItems": False}, [[None, None]], [[1]]),
    ({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}},
     [{"a": 1}, {"a": 1, "b": 2}, {}], [{"c": 1}, {"a": "x"}]),
    ({"type": "object", "propertyNames": {"const": "a"}, "properties": {"b": {}, "a": {}}}, [{"a": 1}], [{"b": 1}]),
    ({"type": "object", "propertyNames": {"pattern": "^x-"}, "properties": {"a": {}, "x-b": {"type": "null"}}},
     [{"x-b": None}, {"x-c": 1}], [{"a": 1}, {"x-b": 1}, {"c": 1}]),
    ({"type": "object", "propertyNames": {"maxLength": 2}}, [{"ab": 1}], [{"abc": 1}]),
    ({"type": "object", "propertyNames": {"minLength": 2, "maxLength": 3}, "additionalProperties": {"type": "null"}},
     [{"ab": None}], [{"a": None}, {"abcd": None}, {"ab": 1}]),
    ({"type": "object", "propertyNames": False}, [{}], [{"a": 1}]),
    ({"type": "array", "uniqueItems": True, "items": LETTERS}, [[], ["a"], ["b", "a"]], [["a", "a"]]),
    ({"uniqueItems": True, "items": {"$ref": "#/$defs/L"}, "minItems": 2, "$defs": {"L": LETTERS}},
     [["b", "a"], 3], [["a"], ["a", "a"]]),
    ({"contains": True}, [[1], 2], [[]]),
    ({"dependentRequired": {"a": ["b"]}, "type": "object"}, [{"b": 1}, {"a": 1, "b": 2}, {}], [{"a": 1}]),
    ({"dependencies": {"a": {"properties": {"b": {"type": "null"}}}}, "type": "object"},
     [{"b": 1}, {"a": 1, "b": None}], [{"a": 1, "b": 2}]),
    ({"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
    ({"if": True, "then": {"type": "null"}, "else": {"type": "string"}}, [None], ["a"]),
    ({"not": {"type": ["string", "null"]}}, [1, [], {}, True], ["a", None]),
    ({"minimum": 1, "exclusiveMinimum": True, "type": "integer"}, [2], [1]),
    ({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
     [{"a": 1, "b": "x"}, {"a\n": "x"}], [{"a": "x"}, raw(r'{"\u0061":"x"}')]),
    ({"type": "number", "exclusiveMinimum": 2, "maximum": 2.5}, [2.25, 2.4, 2.5], [2, 3]),
    ({"type": "number", "exclusiveMaximum": -1, "minimum": -1.25}, [-1.25, -1.2], [-1]),
    ({"type": "number", "maximum": 0.95}, [0.9, 0.95, 0.94, -3], [0.96, 1]),
    ({"type": "number", "multipleOf": 0.25}, [1, 1.5, 0.25], [0.3]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, [0.1, 0.5], [0, 0.6]),
    ({"type": "object", "properties": {"a": {"enum": ["\x01", "\n", "\\u0001"]}}, "additionalProperties": False},
     [{"a": "\x01"}, {"a": "\n"}, {"a": "\\u0001"}], [{"a": "\x02"}]),
    ({"enum": ["a", 1, None], "type": ["string", "null"]}, ["a", None], [1]),
    ({"oneOf": [{"type": "integer", "maximum": 1}, {"type": "integer", "minimum": 2}, {"type": "string"}]},
     [1, 2, "x"], [True]),
    ({"type": "object", "properties": {"k": {"enum": [1, 2]}}, "required": ["k"], "oneOf": [
        {"properties": {"k": {"const": 1}, "v": {"type": "null"}}}, {"properties": {"k": {"const": 2}, "v": LETTERS}}]},
     [{"k": 1, "v": None}, {"k": 2, "v": "a"}], [{"k": 2, "v": None}, {"k": 3}]),
    ({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "null"}}}, [None], [1]),
    ({"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}}, [None], [1]),
    ({"$id": "https://example.com/s", "$ref": "https://example.com/s#/$defs/x", "$defs": {"x": {"type": "null"}}},
     [None], [1]),
    ({"$schema": URIS[2019], "type": "object", "additionalProperties": {"$recursiveRef": "#"}},
     [{}, {"a": {}}], [{"a": 1}]),
    ({"$schema": URIS[7], "$ref": "#/definitions/x", "maxLength": 1, "definitions": {"x": {"type": "string"}}},
     ["abc"], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "fit", "others"), MEANINGS, ids=lambda part: json.dumps(part)[:70])
def test_what_schemas_mean(walker: Walker, schema: dict[str, Any], fit: list[Any], others: list[Any]) -> None:
    """Alone, behind a $ref, in allOf, and inside a grammar."""
    inside = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "$defs", "definitions")}
    forms: list[Any] = [schema]
    if inside.keys() == schema.keys():
        forms += [{"$ref": "#/$defs/S", "$defs": {"S": schema}}, {"allOf": [schema]}]
    for form in forms:
        assert [v for v in fit if not accepts(walker, form, v)] == []
        assert [v for v in others if accepts(walker, form, v)] == []
    grammar = Constraint.lark(f"start: %json {json.dumps(schema)}\n")
    assert all(walker.accepts(grammar, json.dumps(value, ensure_ascii=False)) for value in fit)
    assert not any(walker.accepts(grammar, json.dumps(value)) for value in others if str(value)[:1] != "\x00")


REFUSED: list[tuple[Any, str]] = [
    ({"prefixItems": [{"const": 7}], "additionalItems": False}, "additionalItems together with prefixItems"),
    ({"$schema": URIS[2020], "items": [{}]}, "items must be a schema in draft 2020"),
    ({"$schema": URIS[7], "prefixItems": [{}]}, "'prefixItems' does not belong to draft 7"),
    ({"$schema": URIS[4], "exclusiveMinimum": 3}, "exclusiveMinimum must be true or false in draft 4"),
    ({"$schema": URIS[6], "exclusiveMinimum": True}, "exclusiveMinimum must be a number in draft 6"),
    ({"$schema": "https://example.com/own"}, "$schema 'https://example.com/own' is not known"),
    ({"type": "integer", "$defs": 5}, "$defs must be an object of schemas, not 5, at #"),
    ({"$schema": 5}, "$schema must"),
    ({"title": 5}, "title must be a string, not 5"), ({"minimum": "x"}, "minimum must be a number, not 'x'"),
    ({"properties": {"a/b": {"required": True}}}, "required must be a list of strings, not True, at #/properties/a~1b"),
    ({"$defs": {"unused": {"type": "int"}}}, "type must be one of null, "),
    ({"maxItems": -1}, "maxItems must be an integer"),
    ({"enum": []}, "enum must be a list, not empty"), ({"anyOf": []}, "anyOf must be a list of schemas"),
    ({"pattern": 5}, "pattern must be a string"), ({"items": 5}, "items must be a schema"),
    ({"anyOf": [{"type": "number"}, {"pattern": "^(?!a)b"}]},
     "look-ahead is not supported, at position 4, at #/anyOf/1"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf: its members 0 and 1 may fit the same value"),
    ({"items": {"uniqueItems": True}},
     "'uniqueItems' is supported where items are an enum of at most 5 values, at #/items"),
    ({"minProperties": 2}, "minProperties is supported up to one more"), ({"format": "iri"}, "format 'iri'"),
    ({"minProperties": 1, "properties": {"a": {}}}, "minProperties is not supported together with properties"),
    ({"$defs": {"a": {"$id": "x", "$ref": "#"}}},
     "$id below the root changes what $ref means: not supported, at #/$defs/a"),
    ({"type": "object", "properties": {"a": {"type": "number", "minimum": 3, "maximum": 2}}, "required": ["a"]},
     "json_schema: no value fits: required property 'a' is unsatisfiable, at #"),
    ({"items": {"allOf": [{"type": "number", "minimum": 3}, {"maximum": 2}]}, "type": "array", "minItems": 1},
     "json_schema: no value fits: required item is unsatisfiable, at #"),
    ({"type": "object", "properties": {"a": {"type": "object", "minProperties": 1, "maxProperties": 2, "properties": {
        "b": {}}}}}, "minProperties is not supported together with properties that are not required, at #/prop"),
    ({"patternProperties": {"^a": {}, "b$": {}}}, "two patterns match the same name, which is not supported, at #"),
    ({"const": 0.12345678901234567}, "const: more than 15 digits"),
    ({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}, {"multipleOf": 983}, {"multipleOf": 977}]}, "multipleOf"),
    ({"properties": {"a": {"enum": ["\x01"]}}}, "enum: a control character is not supported where"),
    ({"type": "object", "const": "a"}, "no value fits type, const together, at #"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "why"), REFUSED, ids=lambda part: str(part)[:60])
def test_a_refusal_names_keyword_and_path(walker: Walker, schema: Any, why: str) -> None:
    message = refusal(walker, schema)
    assert why in message
    assert ", at #" in message
    assert len(message) < 400


ENDLESS: list[dict[str, Any]] = [
    {"$ref": "#/$defs/n", "$defs": {"n": NODE}},
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 2},
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1}, "b": {
        "type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}},
    {"type": "object", "required": ["x"], "additionalProperties": {"$ref": "#"}},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "required": ["x"], "properties": {"x": {"anyOf": [
        {"$ref": "#/$defs/n"}, {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/n"}}]}}}}},
    {"type": "object", "allOf": [{"required": ["x"]}, {"properties": {"x": {"$ref": "#"}}}]},
    {"type": "object", "properties": {"later": {"$ref": "#/$defs/n"}}, "$defs": {"n": NODE}},
    {"$ref": "#/$defs/n", "$defs": {"n": {"oneOf": [NODE]}}},
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "minProperties": 1, "additionalProperties": False},
    {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
    {"type": "object", "patternProperties": {"^a": {"$ref": "#"}}, "minProperties": 1, "additionalProperties": False},
]  # fmt: skip


@pytest.mark.parametrize("schema", ENDLESS, ids=lambda schema: json.dumps(schema)[:70])
def test_what_requires_itself_has_no_end_and_is_refused(walker: Walker, schema: dict[str, Any]) -> None:
    assert "leads back to itself, so that no value has an end, at #" in refusal(walker, schema)


def test_recursion_that_may_end_is_taken(walker: Walker) -> None:
    either = {"anyOf": [{"type": "null"}, {**NODE, "properties": {"next": {"$ref": "#"}}}]}
    assert accepts(walker, either, {"next": {"next": None}})
    assert accepts(walker, {"type": "array", "items": {"$ref": "#"}}, [[], [[]]])
    for end in ({"minProperties": 1}, {"additionalProperties": {"$ref": "#"}}):
        chain = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "null"}}, "required": ["b"], **end}
        assert accepts(walker, chain, {"b": None})
    names = {"type": "object", "additionalProperties": {"type": ["object", "null"]}, "minProperties": 1}
    assert accepts(walker, names, {"x": None})
    tree = {"type": "object", "properties": {"all": {"type": "array", "items": {"$ref": "#"}}}, "required": ["all"]}
    assert accepts(walker, tree, {"all": [{"all": []}]})


def nested(depth: int, branch: int) -> dict[str, Any]:
    """A schema whose alternatives double at each step."""
    defs = {str(i): {"allOf": [{"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * branch}] * branch} for i in range(depth)}
    return {"$ref": "#/$defs/0", "$defs": {**defs, str(depth): {"type": "object", "required": ["a"], "properties": {
        "a": {"$ref": "#/$defs/0"}}}}}


BOMBS: list[Any] = [
    nested(12, 3), nested(40, 2),
    {"allOf": [{"anyOf": [{"required": [f"p{i}{j}"]} for i in range(50)]} for j in range(9)]},
    {"oneOf": [{"required": [f"p{i}"], "properties": {f"p{i}": {"const": i}}} for i in range(256)]},
    {"oneOf": [{"type": "integer", "minimum": 2 * i, "maximum": 2 * i + 1} for i in range(256)]},
    {"pattern": "(^a|b$|" * 40 + "c" + ")" * 40}, {"pattern": "(a|a)*" * 2000}, {"pattern": "[^a]{9999}" * 9},
    {"enum": [[[i, str(i)] for i in range(4)]] * 2000},
    {"dependentRequired": {str(i): [str(i + 1)] for i in range(99)}},
    {"$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(1000)}, "$ref": "#/$defs/0"},
    {"type": "object", "properties": {str(i): {"$ref": "#"} for i in range(500)},
     "required": [str(i) for i in range(500)]},
    {"allOf": [{"type": "array", "prefixItems": [{"type": "integer"}] * 100, "minItems": 100}] * 100},
    {"const": {"a": [{}] * 9000}}, {"multipleOf": 0.001, "minimum": -0.123456789012345, "exclusiveMaximum": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("schema", BOMBS, ids=lambda schema: json.dumps(schema)[:50])
def test_hostile_schemas_end_soon(walker: Walker, schema: Any) -> None:
    started = time.process_time()
    with contextlib.suppress(RequestError):
        walker.guide(Constraint.json_schema(schema))
    assert time.process_time() - started < 10


def test_members_of_one_of_are_many(walker: Walker) -> None:
    many = [{"type": "object", "required": ["k"], "properties": {
        "k": {"anyOf": [{"const": f"{i}-{j}"} for j in range(20)]}}} for i in range(200)]
    assert accepts(walker, {"oneOf": many}, {"k": "199-19"})
    assert not accepts(walker, {"oneOf": many}, {"k": "200-1"})
