"""What models write around and in calls, drawn by the engine as the only choice it has: whole and as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import tiny
from tests.server.rig import Running, serving
from tests.server.test_tools import joined

WRITE = {"type": "function", "function": {"name": "write_file", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}}}
NOW = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
CODE = """<tool_call>
{"name": "write_file", "arguments": {"path": "a.py", "content": "def f():
    return 1"}}
</tool_call>"""
BROKEN = '<tool_call>{"name": "now", "arguments": {"a": oops}}</tool_call>'
CASES: dict[str, tuple[str, dict[str, Any], str, list[tuple[str, Any]]]] = {
    "line ends in a string": (CODE, {}, "", [("write_file", {"path": "a.py", "content": "def f():\n    return 1"})]),
    "text on both sides": ('I will look it up\n<tool_call>{"name": "now", "arguments": {}}</tool_call>\nand then '
                           "tell you", {}, "I will look it up\nand then tell you", [("now", {})]),
    "arguments first": ('<tool_call>\n{"arguments": {"path": "p"}, "name": "write_file"}\n</tool_call>', {}, "",
                        [("write_file", {"path": "p"})]),
    "a stop string in the mark": ('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
                                  {"stop": ["<stop>", "\n</tool"]}, "", [("now", {})]),
    "a broken one, then a good one": (f'{BROKEN}\n<tool_call>{{"name":"now","arguments":{{}}}}</tool_call>', {}, BROKEN,
                                      [("now", {})]),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_calls_are_read_from_the_clients_own_text(caller: Running, case: str, stream: bool) -> None:
    text, fields, content, calls = CASES[case]
    ask = {"tools": [WRITE, NOW], "max_tokens": 200, "temperature": 0, "structured_outputs": {"choice": [text]}}
    reply = caller.chat("go", stream=stream, **ask, **fields)
    if stream:
        said, made, (reason,) = joined(reply)
    else:
        (choice,) = reply.json["choices"]
        said, reason = choice["message"]["content"] or "", choice["finish_reason"]
        made = [(c["function"]["name"], c["function"]["arguments"]) for c in choice["message"]["tool_calls"]]
    assert (said, [(name, json.loads(arguments)) for name, arguments in made]) == (content, calls)
    assert reason == "tool_calls"


def test_a_choice_or_a_grammar_has_no_room_for_strict_tools(caller: Running) -> None:
    strict = NOW | {"function": NOW["function"] | {"strict": True}}
    for outputs in ({"choice": ["a"]}, {"grammar": 'start: "a"'}):
        error = caller.chat("go", tools=[strict], structured_outputs=outputs).error
        assert "a choice or a grammar" in error["message"]


ITEMS = """{{ tools | tojson if tools }}{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}\
{% for c in m.tool_calls %}<tool_call>{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}\
</tool_call>{% endfor %}
{% endfor %}[a]"""


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A model whose template takes arguments as objects alone."""
    path: Path = tmp_path_factory.mktemp("items") / "items.gguf"
    path.write_bytes(tiny.model(tokenizer__chat_template=ITEMS, llama__context_length=1024))
    with serving(path) as running:
        yield running


def test_the_template_called_tool_use_is_for_requests_with_tools(tmp_path: Path) -> None:
    """And calls are read in the form that it shows; `default` shows none."""
    path = tmp_path / "named.gguf"
    default, tool_use = "[{{ messages[-1].content }}]", "USE{{ tools | tojson }}<tool_call>"
    path.write_bytes(tiny.model(**{
        "tokenizer.chat_template": default, "tokenizer.chat_templates": ["tool_use"],
        "tokenizer.chat_template.tool_use": tool_use, "llama.context_length": 1024}))
    with serving(path) as running:
        def prompt(**fields: Any) -> str:
            messages = [{"role": "user", "content": "hi"}]
            ids = running.post("/tokenize", {"messages": messages, **fields}).json["tokens"]
            return running.post("/detokenize", {"tokens": ids}).json["prompt"].removeprefix("<bos>")

        assert prompt() == "[hi]"
        assert prompt(tools=[WRITE]) == f"USE{json.dumps([WRITE])}<tool_call>"
        reply = running.chat("hi", tools=[WRITE], max_tokens=200, structured_outputs={"choice": [CODE]})
        assert reply.json["choices"][0]["finish_reason"] == "tool_calls"


def history(arguments: str, **more: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": arguments}}
    return {"max_tokens": 3, "messages": [
        {"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call], **more},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "10"}]}]}


@pytest.mark.parametrize("arguments", ['["Oslo"]', '"Oslo"', "{broken"])
def test_arguments_that_the_template_cannot_show_are_named(items: Running, arguments: str) -> None:
    error = items.post("/v1/chat/completions", history(arguments)).error
    assert error["param"] == "messages[1].tool_calls[0].function.arguments"
    assert "must be the text of a JSON object" in error["message"]


@pytest.mark.parametrize("more", [{}, {"content": []}, {"content": None}])
@pytest.mark.parametrize("arguments", ['{"x": 1}', ""])
def test_an_assistant_with_calls_needs_no_content(items: Running, arguments: str, more: dict[str, Any]) -> None:
    assert items.post("/v1/chat/completions", history(arguments, **more)).status == 200
