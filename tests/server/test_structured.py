"""Structured output over HTTP: what was asked for comes, in OpenAI's words and in vLLM's; the reports are named."""

from __future__ import annotations

import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest

from tests.engine.models import write_poisoned_model
from tests.server.rig import Reply, Running, serving

POINT = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99},
                                          "b": {"type": "boolean"}},
         "required": ["a", "b"], "additionalProperties": False}
SHORT = {str(ord(char)): 10 for char in '"}]'}  # what ends strings, objects and lists
FREE: dict[str, Any] = {"temperature": 1, "max_tokens": 100}


def of_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": schema, **more}}}


def content(reply: Reply) -> str:
    assert reply.status == 200, reply.raw
    choice = reply.json["choices"][0]
    assert choice["finish_reason"] == "stop"
    return choice["message"]["content"] if "message" in choice else choice["text"]


def only(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"v": schema}, "required": ["v"], "additionalProperties": False}


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_schema_whether_strict_or_not(server: Running, strict: bool | None) -> None:
    for ask in (server.chat, server.complete):
        value = json.loads(content(ask(**FREE, seed=1, **of_schema(POINT, strict=strict))))
        assert set(value) == {"a", "b"}


def test_a_json_object(server: Running) -> None:
    bias = {str(ord("}")): 100}
    for fields in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        assert json.loads(content(server.chat(**FREE, logit_bias=bias, **fields))) == {}


@pytest.mark.parametrize(("outputs", "fits"), [
    ({"json": POINT}, r'\{ ?"a" ?: ?\d+ ?, ?"b" ?: ?(true|false) ?\}'), ({"regex": "[ab]{3}"}, "[ab]{3}"),
    ({"json": json.dumps(POINT)}, r'\{ ?"a" ?: ?\d+ ?, ?"b" ?: ?(true|false) ?\}'),
    ({"choice": ["red", "green"]}, "red|green"), ({"grammar": 'root ::= "x" [0-9] "y"'}, "x[0-9]y"),
    ({"grammar": 'start: "x" /[0-9]/ "y"'}, "x[0-9]y")])
def test_the_words_of_vllm(server: Running, outputs: dict[str, Any], fits: str) -> None:
    assert re.fullmatch(fits, content(server.chat(**FREE, structured_outputs=outputs)))


def test_structural_tags(server: Running) -> None:
    tags = {"type": "structural_tag", "triggers": ["<"], "structures": [{"begin": "<n>", "schema": {"const": 7},
                                                                         "end": "</n>"}]}
    fields: dict[str, Any] = {"max_tokens": 60, "temperature": 0, "logit_bias": {str(ord("<")): 100, "257": 60}}
    for asked in ({"response_format": tags}, {"structured_outputs": {"structural_tag": tags}},
                  {"structured_outputs": {"structural_tag": json.dumps(tags)}}):
        text = server.chat(**fields, **asked).json["choices"][0]["message"]["content"]
        assert text.startswith("<n>7</n>")


def test_text_and_nothing_ask_for_nothing(server: Running) -> None:
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": 10}
    free = server.chat(**fields).json["choices"]
    for asked in ({"response_format": {"type": "text"}}, {"response_format": None}, {"structured_outputs": {}},
                  {"structured_outputs": {"json_object": False}}):
        assert server.chat(**fields, **asked).json["choices"] == free


def test_a_stream_equals_a_whole_reply(server: Running) -> None:
    fields = {**FREE, "seed": 3, **of_schema(POINT)}
    events = server.chat(stream=True, **fields).events
    said = "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1])
    assert said == content(server.chat(**fields))


def test_characters_of_many_bytes_come_whole(server: Running) -> None:
    """dynamo#12630: decoding token by token cut them."""
    text = "삼겹살 ď 🔥 नम 👩‍👧"
    events = server.chat(stream=True, temperature=0, max_tokens=90, **of_schema(only({"const": text}))).events
    deltas = [e["choices"][0]["delta"].get("content", "") for e in events[:-1]]
    assert not any("\ufffd" in delta for delta in deltas)
    assert json.loads("".join(deltas)) == {"v": text}


def test_a_pattern_and_a_length_both_count(server: Running) -> None:
    """vllm#45592: the pattern made maxLength disappear."""
    schema = only({"type": "string", "pattern": "^[a-z]+$", "maxLength": 4})
    for seed in range(5):
        assert re.fullmatch("[a-z]{1,4}", json.loads(content(server.chat(**FREE, seed=seed, **of_schema(schema))))["v"])


def test_no_run_of_white_space(server: Running) -> None:
    """vllm#38696: weak models padded to max_tokens."""
    spaces = {str(ord(space)): 20 for space in " \t\n\r"}
    for seed in range(5):
        text = content(server.chat(**FREE, seed=seed, logit_bias=spaces, **of_schema(POINT)))
        assert set(json.loads(text)) == {"a", "b"}
        assert not re.search(r"\s\s|[\t\r\n]", text)


def test_a_model_that_breaks_down_is_not_the_requests_fault(server: Running, tmp_path: Path) -> None:
    asked = of_schema(POINT)
    with serving(write_poisoned_model(tmp_path, token=ord("!"))) as running:
        for fields in ({}, asked):
            reply = running.complete("!", **fields)
            assert (reply.status, reply.error["code"]) == (500, "internal_error")
        assert running.complete("a", **asked).status == 200
    reply = server.complete("!", min_tokens=2, structured_outputs={"regex": ""})
    assert reply.status == 400
    assert "leave no token" in reply.error["message"]


def test_a_refusal_names_field_and_keyword(server: Running) -> None:
    for schema, named in ((only({"not": {"minLength": 1}}), "'not'"), (only({"type": "something"}), "something"),
                          (only({"type": "string", "pattern": "(["}), "([")):
        error = server.chat(**of_schema(schema)).error
        assert error["param"] == "response_format.json_schema.schema"
        assert named in error["message"]
    error = server.chat(**of_schema(POINT), structured_outputs={"regex": "a"}).error
    assert error["param"] == "structured_outputs"
    for name in ("guided_json", "guided_regex", "grammar"):
        assert "structured_outputs" in server.chat(**{name: "a"}).error["message"]


def test_a_schema_counts_wherever_a_client_puts_it(server: Running) -> None:
    for asked in ({"type": "json_object", "schema": POINT}, {"type": "json_schema", "schema": POINT},
                  {"type": "json_object", "json_schema": {"schema": POINT}},
                  {"type": "json_schema", "schema": POINT, "json_schema": {"schema": POINT}}):
        assert set(json.loads(content(server.chat(**FREE, seed=1, response_format=asked)))) == {"a", "b"}


@pytest.mark.parametrize(("asked", "param"), [
    ({"type": "text", "schema": POINT}, "response_format.schema"),
    ({"type": "text", "json_schema": {"schema": POINT}}, "response_format.json_schema.schema"),
    ({"type": "json_schema", "schema": POINT, "json_schema": {"schema": {}}}, "response_format.schema"),
    ({"type": "json_schema"}, "response_format.json_schema.schema"),
    ({"type": "json_schema", "json_schema": POINT}, "response_format.json_schema.schema"),
    ({"type": "json_object", "structures": [{"begin": "a", "end": "b"}]}, "response_format.structures"),
    ({"type": "structural_tag", "triggers": ["<"]}, "response_format.structures"),
    ({"type": "structural_tag", "structures": [{"begin": "a", "end": "b"}]}, "response_format.triggers"),
    ({"type": "structural_tag", "format": {"type": "any_text"}}, "response_format.format"),
    ({"type": "grammar", "grammar": "x"}, "response_format.type"), ({}, "response_format.type"),
    ({"schema": POINT}, "response_format.type"),
])
def test_fields_that_its_type_does_not_use_are_refused(server: Running, asked: dict[str, Any], param: str) -> None:
    error = server.chat(response_format=asked).error
    assert error["param"] == param
    assert param in error["message"]


def test_a_tag_in_a_string_may_hold_nothing_unknown(server: Running) -> None:
    tag = {"structures": [{"begin": "<", "end": ">", "stop": 1}], "triggers": ["<"]}
    error = server.chat(structured_outputs={"structural_tag": json.dumps(tag)}).error
    assert error["param"] == "structured_outputs.structural_tag"
    assert "structures[0].stop" in error["message"]


def test_a_stream_is_refused_before_it_begins(server: Running) -> None:
    assert server.chat(stream=True, structured_outputs={"regex": "(["}).status == 400


def test_free_and_constrained_side_by_side(server: Running) -> None:
    """Each has the output that it has alone."""
    asked: list[dict[str, Any]] = [{"seed": i, **(of_schema(POINT) if i % 2 else {})} for i in range(8)]
    alone = [server.chat(**FREE, **fields).json["choices"] for fields in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda fields: server.chat(**FREE, **fields).json["choices"], asked))
    assert together == alone


def test_the_official_client_parses_it(server: Running) -> None:
    import pydantic

    class Point(pydantic.BaseModel):
        a: int
        b: bool

    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30)
    with client:
        reply = client.chat.completions.parse(model="tiny", messages=[{"role": "user", "content": "hi"}], seed=1,
                                              max_tokens=150, response_format=Point, logit_bias={"44": 10})
    parsed = reply.choices[0].message.parsed
    if reply.choices[0].finish_reason == "stop":
        assert parsed is not None
        assert isinstance(parsed.b, bool)


PETS = {name.title(): {"type": "object", "properties": {"kind": {"const": name}, field: shape},
                       "required": ["kind", field], "additionalProperties": False}
        for name, field, shape in (("cat", "n", {"type": "integer", "minimum": 0, "maximum": 9}),
                                   ("dog", "b", {"type": "boolean"}))}
TAKEN: dict[str, Any] = {
    "names of any kind": {"type": "object", "propertyNames": {"type": "string", "maxLength": 4}, "minProperties": 1,
                          "maxProperties": 2, "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 3}},
    "an unknown format": only({"type": "string", "format": "password", "maxLength": 6}),
    "items that may repeat": only({"type": "array", "items": {"enum": ["a", 1]}, "uniqueItems": False, "maxItems": 3}),
    "items that may not": only({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}),
    "a pointer into a list": {
        "type": "object", "properties": {"left": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
                                         "right": {"$ref": "#/properties/left/anyOf/0"}},
        "required": ["left", "right"], "additionalProperties": False},
    "an enum behind references": {
        "type": "array", "minItems": 2, "maxItems": 2, "items": {"$ref": "#/$defs/T"},
        "$defs": {"W": {"enum": ["Ann", "Ben"]}, "T": only({"$ref": "#/$defs/W"})}},
    "a tagged union": only({"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                                              "propertyName": "kind"},
                            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}) | {"$defs": PETS},
    "items of an older draft": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "minItems": 1,
                                "items": [{"const": 7}], "additionalItems": False},
    "a number above an integer": only({"type": "number", "exclusiveMinimum": 2, "maximum": 2.5}),
}


@pytest.mark.parametrize("schema", TAKEN.values(), ids=TAKEN)
def test_what_comes_is_valid(server: Running, schema: Any) -> None:
    for seed in range(3):
        text = content(server.chat(temperature=1.5, max_tokens=150, seed=seed, **of_schema(schema), logit_bias=SHORT))
        jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema).validate(json.loads(text))


def test_a_grammar_of_sql_is_answered_in_sql(server: Running) -> None:
    grammar = (Path(__file__).parents[2] / "docs" / "grammars" / "sql.gbnf").read_text()
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE users (id, name, age, city)")
    for seed in range(3):
        reply = server.chat(temperature=1, max_tokens=300, seed=seed, logit_bias={str(ord(";")): 20},
                            structured_outputs={"grammar": grammar})
        base.execute(f"EXPLAIN {content(reply)}")
    base.close()


@pytest.mark.parametrize(("asked", "words"), [
    (of_schema({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}},
                                                     "required": ["next"]}}}), ("leads back to itself", "at #")),
    (of_schema({"prefixItems": [{"const": 7}], "additionalItems": False}), ("additionalItems", "at #")),
    (of_schema(only({"type": "string", "pattern": "^(?!a)b"})), ("look-ahead", "at #/properties/v")),
    (of_schema({"type": "integer", "$defs": 5}), ("$defs must", "at #")),
    ({"structured_outputs": {"grammar": 'root ::= "a"\nroot ::= "b"'}}, ("is defined already", "line 2, column 1")),
    ({"structured_outputs": {"grammar": "start: start"}}, ("'start' never ends", "line 1")),
    ({"structured_outputs": {"regex": "a[^\\s\\S]"}}, ("no token of this model can come",)),
])
def test_a_refusal_names_its_path(server: Running, asked: dict[str, Any], words: tuple[str, ...]) -> None:
    reply = server.chat(**asked)
    assert reply.status == 400
    assert all(word in reply.error["message"] for word in words), reply.error["message"]
