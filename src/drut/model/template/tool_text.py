"""Converts tools, calls and their results to the form that a chat template takes: data, or text for templates without
support for tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
PROBE_VALUE, PROBE_AS_PYTHON, PROBE_RESULT = "probing", "{'probed': 'probing'}", "result of the probe"
PROBE: list[Message] = [
    {"role": "user", "content": "probe"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "probe1234", "type": "function", "function": {
        "name": "probe", "arguments": '{"probed": "probing"}'}}]},
    {"role": "tool", "content": PROBE_RESULT, "tool_call_id": "probe1234", "name": "probe"},
]  # fmt: skip


def check_calls(calls: object, where: str) -> None:
    """Raises RequestError unless `calls` is a list of calls, each with a function's name and arguments as text."""
    for i, call in enumerate(calls if isinstance(calls, Iterable) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise RequestError(f"{where}[{i}].function is missing")
        for key in ("name", "arguments"):
            if not isinstance(function.get(key), str):
                raise RequestError(f"{where}[{i}].function.{key} must be a string")


def with_arguments(messages: Iterable[Message], *, as_objects: bool) -> list[Message]:
    """Returns the messages; arguments of calls that are the text of an object become objects, others stay."""
    return _each_call(messages, _parsed) if as_objects else list(messages)


def without_text(messages: Iterable[Message]) -> list[Message]:
    """Returns the messages; arguments that are still text become empty."""
    return _each_call(messages, lambda arguments: {} if isinstance(arguments, str) else arguments)


def _each_call(messages: Iterable[Message], change: Callable[[Any], object]) -> list[Message]:
    """Returns the messages with changed arguments of calls."""
    def changed(call: Mapping[str, Any]) -> Message:
        function = call["function"]
        return {**call, "function": {**function, "arguments": change(function["arguments"])}}

    return [{**m, "tool_calls": [changed(call) for call in m["tool_calls"]]} if m.get("tool_calls") else m
            for m in messages]


def first_text(messages: Iterable[Message]) -> str | None:
    """Returns the path of the first arguments that are still text."""
    return next((f"messages[{i}].tool_calls[{j}].function.arguments" for i, message in enumerate(messages)
                 for j, call in enumerate(message.get("tool_calls") or ())
                 if isinstance(call["function"]["arguments"], str)), None)


def _parsed(arguments: str) -> object:
    """Returns the arguments as an object, or unchanged if they are not one: a truncated call's arguments are not JSON,
    and the model sees what it wrote."""
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def as_text(messages: Sequence[Message], tools: Sequence[Mapping[str, object]], *, takes_system: bool) -> list[Message]:
    """Returns messages of plain text: calls as JSON, results as messages of the user.

    The system message describes the tools or, without `takes_system`, the user's first message.
    """
    made: list[Message] = []
    for i, message in enumerate(messages):
        if message["role"] != "tool":
            plain = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
            made.append(plain | {"content": _with_calls(message)})
            continue
        result = f"{message.get('name', 'The function')} returned: {message['content']}"
        if i and messages[i - 1]["role"] == "tool":  # one turn, because some templates require alternating turns
            made[-1] = {**made[-1], "content": f"{made[-1]['content']}\n{result}"}
        else:
            made.append({"role": "user", "content": result})
    return _described(made, tools, "system" if takes_system else "user") if tools else made


def _with_calls(message: Message) -> str:
    written = [f'{{"name": {_json(c["function"]["name"])}, "arguments": {c["function"]["arguments"] or "{}"}}}'
               for c in message.get("tool_calls") or ()]
    content = message["content"]
    return "\n".join([content, *written] if content or not written else written)


def _described(messages: list[Message], tools: Sequence[Mapping[str, object]], role: str) -> list[Message]:
    """Returns the messages with the tools at the end of the system message, or before the user's first text."""
    text = INSTRUCTION.format(tools="\n".join(_json(tool.get("function", tool)) for tool in tools))
    at = next((i for i, message in enumerate(messages) if message["role"] == role), None)
    if at is None or (role == "system" and at):
        return [{"role": role, "content": text}, *messages]
    content = messages[at]["content"]
    parts = (content, text) if role == "system" else (text, content)
    return [*messages[:at], {**messages[at], "content": "\n\n".join(parts)}, *messages[at + 1 :]]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
