"""Tools over HTTP: offered, called, streamed, and their results sent back."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openai import OpenAI

from drut.engine.request.output import Chunk
from drut.server.admission import QueuedRequest
from tests.cli import tiny
from tests.server.rig import Reply, Running, within
from tests.server.scripted import ScriptedAdmission, ended, said, scripted

PATH = "/v1/chat/completions"
CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
        "additionalProperties": False}
SUM = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"],
       "additionalProperties": False}
LOOK = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": CITY}}
ADD = {"type": "function", "function": {"name": "add", "parameters": SUM}}
SCHEMAS = {"look": CITY, "add": SUM}


def calls_of(reply: Reply) -> list[tuple[str, Any]]:
    """The calls of a whole reply, each checked against its tool."""
    assert reply.status == 200, reply.raw
    return checked([(c["function"]["name"], c["function"]["arguments"])
                    for c in reply.json["choices"][0]["message"].get("tool_calls", [])])


def checked(calls: list[tuple[str, str]]) -> list[tuple[str, Any]]:
    made = [(name, json.loads(arguments)) for name, arguments in calls]
    for name, arguments in made:
        jsonschema.validate(arguments, SCHEMAS[name])
    return made


def joined(reply: Reply) -> tuple[str, list[tuple[str, str]], list[str]]:
    """Content, calls and finish reasons of a stream; each call begins once, with its id and name."""
    content, calls, reasons, ids = "", dict[int, list[str]](), [], set()
    assert reply.status == 200, reply.raw
    for event in reply.events[:-1]:
        for choice in event["choices"]:
            content += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(calls)
                    assert call["type"] == "function"
                    ids.add(call["id"])
                    calls[call["index"]] = [call["function"]["name"], ""]
                else:
                    assert "name" not in call["function"]
                calls[call["index"]][1] += call["function"]["arguments"]
            reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert len(ids) == len(calls)
    return content, [(name, arguments) for name, arguments in calls.values()], reasons


def test_a_call_that_must_be_is_one_and_fits(caller: Running) -> None:
    for seed in range(3):
        fields = {"tools": [LOOK, ADD], "tool_choice": "required", "temperature": 1.5, "seed": seed, "max_tokens": 300,
                  "logit_bias": {str(tiny.EOS): 100}}
        whole = caller.chat("hi", **fields)
        choice = whole.json["choices"][0]
        assert calls_of(whole)
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
        content, calls, reasons = joined(caller.chat("hi", stream=True, **fields))
        assert (content, checked(calls), reasons) == ("", calls_of(whole), ["tool_calls"])


def test_calls_side_by_side_have_indices_of_their_own(caller: Running) -> None:
    fields = {"tools": [LOOK, ADD], "tool_choice": "required", "max_tokens": 300, "temperature": 1, "seed": 1,
              "logit_bias": {str(tiny.EOS): -100}}
    content, calls, reasons = joined(caller.chat("hi", stream=True, **fields))
    assert (content, reasons) == ("", ["length"])
    assert len(checked(calls[:-1])) > 1
    whole = caller.chat("hi", **fields).json["choices"][0]["message"]["tool_calls"]
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in whole] == calls
    one = caller.chat("hi", parallel_tool_calls=False, **fields)
    assert len(calls_of(one)) == 1
    assert one.json["choices"][0]["finish_reason"] == "tool_calls"


def test_a_named_call_stops_as_any_answer(caller: Running) -> None:
    chosen = {"type": "function", "function": {"name": "add"}}
    reply = caller.chat("hi", tools=[LOOK, ADD], tool_choice=chosen, max_tokens=200, n=2, temperature=1)
    for choice in reply.json["choices"]:
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "add"
        assert choice["finish_reason"] == "stop"


def test_a_call_that_is_cut_is_no_content(caller: Running) -> None:
    for stream in (False, True):
        reply = caller.chat("hi", tools=[LOOK], tool_choice="required", max_tokens=1, stream=stream)
        if stream:
            assert joined(reply) == ("", [], ["length"])
        else:
            choice = reply.json["choices"][0]
            assert choice["finish_reason"] == "length"
            assert "tool_calls" not in choice["message"]
            assert not choice["message"]["content"]


def test_a_call_that_a_stop_string_cuts_is_not_one_to_make(caller: Running) -> None:
    for stream in (False, True):
        reply = caller.chat("hi", tools=[LOOK], tool_choice="required", max_tokens=200, stop=["city"], stream=stream)
        if stream:
            _, calls, reasons = joined(reply)
            assert (len(calls), reasons) == (1, ["stop"])
        else:
            (choice,) = reply.json["choices"]
            assert choice["finish_reason"] == "stop"
            assert choice["stop_reason"] == "city"
            assert choice["message"]["tool_calls"][0]["function"]["name"] == "look"


def test_tools_that_may_not_be_called_are_not_shown(caller: Running) -> None:
    plain = caller.chat("hi", max_tokens=5, seed=1)
    none = caller.chat("hi", max_tokens=5, seed=1, tools=[LOOK], tool_choice="none")
    assert none.json["usage"] == plain.json["usage"]
    assert "tool_calls" not in none.json["choices"][0]["message"]
    assert none.json["choices"][0]["finish_reason"] in ("stop", "length")
    shown = caller.chat("hi", max_tokens=5, tools=[LOOK])
    assert shown.json["usage"]["prompt_tokens"] > plain.json["usage"]["prompt_tokens"]


def test_the_template_gets_tools_calls_and_results(caller: Running) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city":"Oslo"}'}}
    parts = [{"type": "text", "text": "Weather"}, {"type": "text", "text": " in Oslo?"}]
    messages = [{"role": "user", "content": parts},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]}]
    body = {"messages": messages, "tools": [LOOK], "max_tokens": 3, "return_token_ids": True}
    reply = caller.post(PATH, body)
    assert reply.status == 200, reply.raw
    ids = reply.json["prompt_token_ids"]
    text = caller.post("/detokenize", {"tokens": ids}).json["prompt"].removeprefix("<bos>")
    assert text == (f"[T]{json.dumps([LOOK])}\n[u]Weather in Oslo?[a]<tool_call>\n"
                    '{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>[t]sunny[a]')
    assert caller.post("/tokenize", {"messages": messages, "tools": [LOOK]}).json["tokens"] == ids
    plain = [{**messages[0], "content": "Weather in Oslo?"}, messages[1], {**messages[2], "content": "sunny"}]
    again = caller.post(PATH, body | {"messages": plain})
    assert again.json["prompt_token_ids"] == ids


BAD = [
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "custom"),
    ({"tools": [LOOK, LOOK]}, "duplicate"),
    ({"tools": [{"type": "function"}]}, "function is missing"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "name"),
    ({"tools": [LOOK], "tool_choice": "maybe"}, "tool_choice"),
    ({"tools": [LOOK], "tool_choice": {"type": "function", "function": {"name": "nope"}}}, "nope"),
    ({"tools": [LOOK], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "allowed_tools"),
    ({"tool_choice": "required"}, "no tools"),
    ({"tools": [LOOK] * 300}, "--max-tools"),
    ({"functions": [{"name": "f"}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "f\n"}}]}, "tools[0].function.name"),
]


@pytest.mark.parametrize(("fields", "said_"), BAD)
def test_what_cannot_be_is_named(caller: Running, fields: dict[str, Any], said_: str) -> None:
    error = caller.chat("hi", **fields).error
    assert said_ in error["message"]
    assert caller.complete("well", max_tokens=2).status == 200


@pytest.mark.parametrize("parameters", [{"type": "object", "properties": {"a": {"type": "something"}}},
                                        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(["}}}])
def test_a_bad_schema_is_the_requests_fault(caller: Running, parameters: dict[str, Any]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    error = caller.chat("hi", tools=[tool], tool_choice="required").error
    assert error["param"] == "tools[0].function.parameters"
    assert caller.complete("well", max_tokens=2).status == 200


def test_messages_of_calls_must_be_whole(caller: Running) -> None:
    user = {"role": "user", "content": "x"}
    for message, named in (({"role": "tool", "content": "x"}, "tool_call_id"),
                           ({"role": "assistant"}, "content"),
                           ({"role": "user", "content": "x", "tool_call_id": "c"}, "tool_call_id"),
                           ({"role": "user", "content": "x", "tool_calls": [
                               {"id": "c", "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls"),
                           ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "function")):
        error = caller.post(PATH, {"messages": [user, message]}).error
        assert within(error["param"], "messages[1]"), error
        assert named in error["message"]


CALL = '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>'
ANSWERS = {
    "call": (CALL, None, [("look", '{"city": "Oslo"}')], "tool_calls"),
    "text and two": (f"I look.\n{CALL}\n{CALL}", "I look.", [("look", '{"city": "Oslo"}')] * 2, "tool_calls"),
    "no tool of ours": (CALL.replace("look", "rm"), CALL.replace("look", "rm"), [], "stop"),
    "no JSON": (CALL.replace("}}", "}"), CALL.replace("}}", "}"), [], "stop"),
    "text": ("Just text.", "Just text.", [], "stop"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ANSWERS)
def test_the_model_may_call(caller_path: Path, name: str, stream: bool) -> None:
    text, content, calls, reason = ANSWERS[name]

    async def script(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        for letter in text:
            yield said(letter)
        yield ended()

    with scripted(caller_path, script, room=1024) as (running, _):
        client = OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        ask: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "tools": [LOOK, ADD]}
        if stream:
            got = joined(running.chat("hi", tools=[LOOK, ADD], stream=True))
            assert got == (content or "", calls, [reason])
            with client.chat.completions.stream(**ask) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(**ask).choices[0]
    assert (choice.message.content or None, choice.finish_reason) == (content, reason)
    got_calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
    assert got_calls == calls


def test_strict_tools_keep_to_their_schema_where_the_model_chooses(caller: Running) -> None:
    strict = {"type": "function", "function": LOOK["function"] | {"strict": True}}
    reply = caller.chat("hi", tools=[strict], max_tokens=8)
    assert reply.status == 200, reply.raw
    bad = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"not": {"minProperties": 1}}}}
    assert "'not'" in caller.chat("hi", tools=[bad], tool_choice="auto").error["message"]


def test_a_template_without_tools_gets_them_as_text(model_path: Path) -> None:
    async def script(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield said('{"name": "look", "arguments": {"city": "Rome"}}')
        yield ended()

    admission: ScriptedAdmission
    with scripted(model_path, script, room=2000) as (running, admission):
        reply = running.chat("hi", tools=[LOOK])
        assert calls_of(reply) == [("look", {"city": "Rome"})]
        prompt = bytes(i for i in admission.asks[0].prompt if i < 256).decode()
    assert json.dumps(LOOK["function"]) in prompt


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template="{% if tools %}<function=f>{% endif %}[a]"))

    async def script(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield ended("x")

    with scripted(path, script) as (running, _):
        assert running.chat("hi", tools=[LOOK]).error["code"] == "unsupported_parameter"
        assert running.chat("hi", tools=[LOOK], tool_choice="none").status == 200
    with scripted(path, script, tool_parser="hermes") as (running, _):
        assert running.chat("hi", tools=[LOOK]).status == 200


def test_texts_and_lists_of_arguments_get_the_maximum_that_is_set(tmp_path: Path) -> None:
    """In the grammar of calls, and only where the schema has none."""
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template="{{ messages[-1].content }}"))
    schema = {"type": "object", "properties": {"open": {"type": "string"}, "list": {"type": "array"},
                                               "short": {"type": "string", "maxLength": 3}}}
    tool = {"type": "function", "function": {"name": "note", "parameters": schema}}

    async def script(ask: QueuedRequest) -> AsyncIterator[Chunk]:
        yield ended("")

    for settings, said_to in (({}, []), ({"tool_string_chars": 50, "tool_array_items": 7}, [50, 7])):
        with scripted(path, script, room=1024, **settings) as (running, admission):
            assert running.chat("hi", tools=[tool], tool_choice="required").status == 200
            constraint = admission.asks[-1].params.constraint
            assert constraint is not None
            bounds = [int(n) for n in re.findall(r'"max(?:Length|Items)":\s*(\d+)', constraint.source)]
            assert sorted(bounds) == sorted([3, *said_to])


POINT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
FORMATTED: list[dict[str, Any]] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": POINT}}},
    {"response_format": {"type": "json_object", "schema": POINT}},
    {"structured_outputs": {"regex": '\\{"n": [0-9]\\}'}},
]


@pytest.mark.parametrize("formatted", FORMATTED)
@pytest.mark.parametrize("stream", [False, True])
def test_calls_that_must_be_made_leave_no_place_for_a_format(caller: Running, formatted: dict[str, Any],
                                                             stream: bool) -> None:
    named = {"type": "function", "function": {"name": "add"}}
    for choice, names in (("required", {"look", "add"}), (named, {"add"})):
        fields = {"tools": [LOOK, ADD], "tool_choice": choice, "max_tokens": 300, "parallel_tool_calls": False}
        reply = caller.chat("hi", stream=stream, **fields, **formatted)
        calls = checked(joined(reply)[1]) if stream else calls_of(reply)
        assert len(calls) == 1
        assert calls[0][0] in names


@pytest.mark.parametrize("formatted", FORMATTED)
@pytest.mark.parametrize("stream", [False, True])
def test_where_the_model_chooses_it_calls_or_keeps_to_the_format(caller: Running, formatted: dict[str, Any],
                                                                 stream: bool) -> None:
    strict = LOOK | {"function": LOOK["function"] | {"strict": True}}
    for first, tools in (("<", [LOOK]), ("{", [LOOK]), ("<", [strict]), ("{", [strict])):
        bias = {str(ord(first)): 100, str(ord("}")): 30, str(tiny.EOS): 50}
        reply = caller.chat("hi", stream=stream, tools=tools, max_tokens=400, logit_bias=bias,
                            parallel_tool_calls=False, **formatted)
        if stream:
            content, calls, reasons = joined(reply)
        else:
            choice = reply.json["choices"][0]
            content, reasons = choice["message"]["content"] or "", [choice["finish_reason"]]
            calls = [(c["function"]["name"], c["function"]["arguments"])
                     for c in choice["message"].get("tool_calls", [])]
        if first == "{":
            assert calls == []
            jsonschema.validate(json.loads(content), POINT)
            assert reasons == ["stop"]
        else:
            assert content == ""
            assert {name for name, _ in calls} == {"look"}
            assert reasons == ["tool_calls"]
            assert tools == [LOOK] or checked(calls)


def test_structural_tags_have_room_for_calls_and_not_for_strict_ones(caller: Running) -> None:
    tags = {"type": "structural_tag", "triggers": ["<n>"],
            "structures": [{"begin": "<n>", "schema": {"const": 7}, "end": "</n>"}]}
    assert caller.chat("hi", tools=[LOOK], response_format=tags).status == 200
    strict = LOOK | {"function": LOOK["function"] | {"strict": True}}
    assert "structural tags" in caller.chat("hi", tools=[strict], response_format=tags).error["message"]
    assert caller.chat("hi", tools=[LOOK], tool_choice="required", response_format=tags).status == 200


def test_no_tools_are_an_empty_list_or_none_and_leave_nothing_to_choose(caller: Running) -> None:
    plain = caller.chat("hi", ignore_eos=True).json["usage"]
    for tools in ({}, {"tools": []}, {"tools": None}):
        for choice in ({}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"tool_choice": None}):
            for parallel in ({}, {"parallel_tool_calls": True}, {"parallel_tool_calls": False}):
                reply = caller.chat("hi", ignore_eos=True, **tools, **choice, **parallel)
                assert reply.status == 200, (tools, choice, parallel, reply.raw)
                assert reply.json["usage"] == plain
        assert caller.chat("hi", tool_choice="required", **tools).error["param"] == "tool_choice"
        named = {"type": "function", "function": {"name": "look"}}
        assert caller.chat("hi", tool_choice=named, **tools).error["param"] == "tool_choice.function.name"


CHOICES: list[tuple[Any, str, str]] = [
    ("any", "tool_choice", "none, auto, required"), ({"type": "any"}, "tool_choice.type", "function"),
    ({"type": "function"}, "tool_choice.function", "missing"),
    ({"type": "function", "name": "look"}, "tool_choice.function", "missing"),
    ({"type": "function", "function": {}}, "tool_choice.function.name", "missing"),
    ({"type": "function", "function": {"name": "no"}}, "tool_choice.function.name", "'no'"),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, "tool_choice.allowed_tools", "not supported"),
    ({"type": "allowed_tools"}, "tool_choice.type", "function"), (5, "tool_choice", "str"),
]


@pytest.mark.parametrize(("choice", "param", "says"), CHOICES)
def test_choices_that_cannot_be_are_named(caller: Running, choice: Any, param: str, says: str) -> None:
    error = caller.chat("hi", tools=[LOOK, ADD], tool_choice=choice).error
    assert error["param"] == param
    assert says in error["message"]


def test_a_type_left_out_is_a_function(caller: Running) -> None:
    reply = caller.chat("hi", tools=[{"function": ADD["function"]}], tool_choice={"function": {"name": "add"}},
                        max_tokens=200)
    assert [name for name, _ in calls_of(reply)] == ["add"]


def test_the_tool_at_fault_is_named_by_its_place(caller: Running) -> None:
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"not": {"minProperties": 1}}}}
    wrong = {"type": "function", "function": {"name": "wrong", "parameters": {"type": "something"}}}
    for tool in (bad, wrong):
        for choice in ("required", {"type": "function", "function": {"name": tool["function"]["name"]}}):
            error = caller.chat("hi", tools=[LOOK, tool], tool_choice=choice).error
            assert error["param"] == "tools[1].function.parameters"
