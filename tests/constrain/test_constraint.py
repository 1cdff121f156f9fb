"""What a constraint takes, and what it refuses before any library reads it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from drut.constrain import Constraint, ReasoningSpec
from drut.constrain.limits import (
    MAX_BYTES,
    MAX_CHAIN,
    MAX_DEPTH,
    MAX_ENUM,
    MAX_NODES,
    MAX_PROPERTIES,
    MAX_REGEX_BYTES,
    MAX_RULES,
)
from drut.errors import RequestError


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def chain(links: int) -> dict[str, Any]:
    defs: dict[str, Any] = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(links)}
    return {"$defs": defs | {str(links): {"type": "integer"}}, "$ref": "#/$defs/0"}


WIDE = {f"p{i}": {} for i in range(MAX_PROPERTIES + 1)}
SCHEMAS: list[tuple[Any, str]] = [
    ({"not": {"minLength": 1}}, "'not'"), ({"properties": {"a": {"uniqueItems": True}}}, "'uniqueItems'"),
    ({"maxlength": 3}, "'maxlength'"), ({"anyOf": [{"if": {"minimum": 1}, "then": {"maximum": 5}}]}, "'if'"),
    (False, "false allows no value"),
    ([], "must be an object, not list"), ("{", "is not valid JSON"), ("[1", "is not valid JSON"),
    ({"const": float("nan")}, "cannot be written as JSON"), ('{"const": NaN}', "NaN is not JSON"),
    ({"enum": list(range(MAX_ENUM + 1))}, f"an enum of {MAX_ENUM + 1} values"),
    ({"properties": WIDE}, f"properties of {MAX_PROPERTIES + 1} names"),
    ({"description": "x" * MAX_BYTES}, f"at most {MAX_BYTES} are allowed"),
    (nested(MAX_DEPTH + 1), f"nested more than {MAX_DEPTH} deep"), ("[" * 100_000, "nested more than"),
    ({"examples": [[0] * MAX_NODES]}, f"more than {MAX_NODES} values"),
    ({"pattern": "a\0b"}, "NUL"), ({"patternProperties": {"\0": {}}}, "pattern has a NUL"),
    ({"const": "\ud800"}, "lone surrogate"),
    ({"$ref": "#"}, "leads back to itself"), ({"$ref": "http://x/y"}, "leads out of the schema"),
    ({"$ref": "#/$defs/no"}, "names nothing"), ({"$ref": "#anchor"}, "names nothing"),
    ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}},
      "$ref": "#/$defs/a"}, "leads back to itself"),
    ({"multipleOf": 0}, "multipleOf"), ({"multipleOf": True}, "multipleOf"), ({"multipleOf": 1.001}, "multipleOf"),
    ({"multipleOf": 100_000}, "multipleOf"), ({"multipleOf": 1e-300}, "multipleOf"),
    ({"multipleOf": 10**200}, "multipleOf"), (f'{{"multipleOf": {10**400}}}', "an integer of 401 digits"),
    ({"minimum": 10**400}, "an integer of 401 digits"), (f'{{"maximum": {"9" * 5000}}}', "an integer of 5000 digits"),
    ({"const": -(2**63)}, "const: an integer beyond 2^53"), ({"const": 1e300}, "const: an integer beyond 2^53"),
    ({"enum": [0, {"a": [2**53 + 1]}]}, "enum: an integer beyond 2^53"),
    ({"maximum": -(2**63)}, "maximum: beyond 64 bits"),
    ({"exclusiveMinimum": 1e19}, "exclusiveMinimum: beyond 64 bits"),
    ({"default": {"const": -(2**63)}, "$ref": "#/default"}, "does not lead to a schema"),
    ({"required": list(WIDE)}, f"required of {MAX_PROPERTIES + 1} names"),
    (chain(MAX_CHAIN), f"nested more than {MAX_CHAIN} deep in total"),
]


@pytest.mark.parametrize(("schema", "said"), SCHEMAS, ids=lambda value: str(value)[:40])
def test_a_schema_is_refused_with_its_fault(schema: Any, said: str) -> None:
    started = time.thread_time()
    with pytest.raises(RequestError) as error:
        Constraint.json_schema(schema)
    assert said in str(error.value)
    assert len(str(error.value)) < 300
    assert time.thread_time() - started < 10  # not the minutes of a search without bounds


def test_what_goes_into_the_value_may_come_back_to_itself() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "all": {"items": {"anyOf": [{"$ref": "#"}]}}}}
    assert json.loads(Constraint.json_schema(tree).source)["properties"] == tree["properties"]


def test_a_schema_is_the_same_as_text_and_as_mapping() -> None:
    schema = {"properties": {"z": {"type": "integer"}, "a": {"const": "é"}}}
    made = Constraint.json_schema(schema)
    assert made == Constraint.json_schema(json.dumps(schema))
    assert list(json.loads(made.source)["properties"]) == ["z", "a"]  # in their order


def test_nobody_else_sets_the_librarys_options() -> None:
    lax = {"type": "object", "x-guidance": {"whitespace_flexible": True, "lenient": True}}
    assert Constraint.json_schema(lax) == Constraint.json_schema({"type": "object"})
    inside = Constraint.lark(f"start: %json {json.dumps(lax)}\n")
    assert "whitespace_flexible" not in inside.source
    assert json.dumps(r"\x20?") in inside.source


OTHERS: list[tuple[Callable[[], object], str]] = [
    (lambda: Constraint.regex("a\0"), "regex has a NUL"), (lambda: Constraint.regex(3), "regex must be a string"),  # type: ignore[arg-type]
    (lambda: Constraint.regex("a" * (MAX_REGEX_BYTES + 1)), f"at most {MAX_REGEX_BYTES}"),
    (lambda: Constraint.regex("(" * 1000 + ")" * 1000), "nested more than"),
    (lambda: Constraint.choice([]), "choice"), (lambda: Constraint.choice("ab"), "choice"),
    (lambda: Constraint.choice(["a", ""]), r"choice\[1\] is empty"),
    (lambda: Constraint.choice([str(i) for i in range(MAX_ENUM + 1)]), "choice"),
    (lambda: Constraint.choice([1]), r"choice\[0\]"),  # type: ignore[list-item]
    (lambda: Constraint.lark("start: " + "(" * 60_000 + '"a"' + ")" * 60_000), "nested more than"),
    (lambda: Constraint.lark("root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000), "nested more than"),
    (lambda: Constraint.lark("\n".join(f"a{i}: a{i + 1}" for i in range(MAX_RULES + 1))),
     f"more than {MAX_RULES} rules"),
    (lambda: Constraint.lark('start: "c" A\nA: /a/ & /b/\n%ignore /x+/'), "%ignore is not supported"),
    (lambda: Constraint.lark('start: a\na[lazy, temperature=0.5]: /b+/'), "temperature is not supported"),
    (lambda: Constraint.lark('%llguidance {"allow_invalid_utf8": true}\nstart: "a"'), "%llguidance is not supported"),
    (lambda: Constraint.lark("root ::= ::= ::="), "grammar"),
    (lambda: Constraint.lark(""), "it has no rules"), (lambda: Constraint.lark("hello"), "it has no rules"),
    (lambda: Constraint.lark("start: %lark { }"), "it has no rules"),
    (lambda: Constraint.lark("start: " + '%lark {start: "a"} ' * 17), "more than 16 grammars within it"),
    (lambda: Constraint.regex("a\\\\\\"), "a backslash at the end"),
    (lambda: Constraint.json_schema({"multipleOf": 1e-300}), "multipleOf 1e-300: at most 1000"),
    (lambda: Constraint.json_schema({"multipleOf": 10**15}), "multipleOf 1000000000000000: at most 1000"),
    (lambda: Constraint.json_schema({"patternProperties": {f"^{i}x": {} for i in range(64)},
                                     "items": {"patternProperties": {f"^{i}y": {} for i in range(65)}}}),
     "patternProperties: 129 patterns in all"),
    (lambda: Constraint.lark('start: %json {"not": {"minLength": 1}}'), "'not'"),
    (lambda: Constraint.lark('start: %json {"a": '), "%json"),
    (lambda: Constraint.lark("x" * (MAX_BYTES + 1)), f"at most {MAX_BYTES}"),
    (lambda: Constraint.structural_tags([], ["<"]), "no tags"),
    (lambda: Constraint.structural_tags([("<a>", {}, "</a>")], ["<b"]), "no trigger is a beginning of '<a>'"),
    (lambda: Constraint.structural_tags([("<a>", {"not": {"minLength": 1}}, "")], ["<"]), "'not'"),
    (lambda: Constraint("magic"), "'magic'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "said"), OTHERS, ids=[said for _, said in OTHERS])
def test_others_are_refused_with_their_fault(make: Callable[[], object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        make()


def test_brackets_that_are_text_do_not_count() -> None:
    Constraint.lark("start: " + " | ".join(['"("', "/[(]/", r'"\"("'] * 100))
    Constraint.regex(r"\(" * 100)


def test_a_constraint_crosses_to_the_engine() -> None:
    for made in (Constraint.json_object(), Constraint.regex("a"), Constraint.choice(["a"])):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Constraint) == made
    reasoning = ReasoningSpec("<t>", "</t>", budget=3, closing="</t>")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(reasoning), type=ReasoningSpec) == reasoning
