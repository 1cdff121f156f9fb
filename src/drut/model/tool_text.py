"""Tools, calls and their results in the form that a chat template takes: as data, or as text where it knows none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drut.errors import RequestError

Message = dict[str, Any]

INSTRUCTION = """You can call functions. Each line describes one, as JSON:
{tools}
To call a function, answer with nothing but this JSON object, for several calls one after the other:
{{"name": <name of the function>, "arguments": <object with its arguments>}}"""

PROBE_TOOL = {"type": "function", "function": {
    "name": "probe", "description": "probe",
    "parameters": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}}}
PROBE_SHOWN = re.compile(r'"probed"\s*:\s*"probing"')
PROBE: list[Message] = [
    {"role": "user", "content": "probe"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "probe1234", "type": "function", "function": {
        "name": "probe", "arguments": '{"probed": "probing"}'}}]},
    {"role": "tool", "content": "probe", "tool_call_id": "probe1234", "name": "probe"},
]  # fmt: skip


def check_calls(calls: object, where: str) -> None:
    """RequestError for what is no list of calls, each with a function's name and arguments as text."""
    for i, call in enumerate(calls if isinstance(calls, Iterable) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise RequestError(f"{where}[{i}].function is missing")
        for key in ("name", "arguments"):
            if not isinstance(function.get(key), str):
                raise RequestError(f"{where}[{i}].function.{key} must be a string")


def with_arguments(messages: Iterable[Message], *, as_objects: bool) -> list[Message]:
    """The messages, their calls' arguments as objects where they are the text of one, or else as they are."""
    if not as_objects:
        return list(messages)
    return [{**m, "tool_calls": [_with_object(call) for call in m["tool_calls"]]} if m.get("tool_calls") else m
            for m in messages]


def _with_object(call: Mapping[str, Any]) -> Message:
    function = call["function"]
    return {**call, "function": {**function, "arguments": _parsed(function["arguments"])}}


def _parsed(arguments: str) -> object:
    """A cut call's arguments are no JSON; the model is shown what it wrote."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def told(messages: Sequence[Message], tools: Sequence[Mapping[str, object]]) -> list[Message]:
    """Messages of plain text: tools in the system message, calls as the JSON they are, results as the user's words."""
    made: list[Message] = []
    for message in messages:
        calls, content = message.get("tool_calls") or (), message["content"]
        if calls:
            written = [f'{{"name": {_json(c["function"]["name"])}, "arguments": {c["function"]["arguments"] or "{}"}}}'
                       for c in calls]
            content = "\n".join([content, *written] if content else written)
        if message["role"] == "tool":
            made.append({"role": "user", "content": f"{message.get('name', 'The function')} returned: {content}"})
        else:
            made.append({k: v for k, v in message.items() if k in ("role", "name")} | {"content": content})
    if not tools:
        return made
    text = INSTRUCTION.format(tools="\n".join(_json(tool.get("function", tool)) for tool in tools))
    if made[0]["role"] == "system":
        return [{**made[0], "content": f"{made[0]['content']}\n\n{text}"}, *made[1:]]
    return [{"role": "system", "content": text}, *made]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
