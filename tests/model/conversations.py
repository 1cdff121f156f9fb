"""Conversations that chat templates are tried with, and what becomes of one before a template sees it.

Where the texts of two renderers are compared, both get what `prepared` makes: it is stated in docs/tools.md.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import Any

from drut.model.template.tool_text import as_text

Message = dict[str, Any]
BOS, EOS = "<s>", "</s>"
ARGUMENTS = {"city": "Oslo", "days": 3}
HARD = {"text": 'say "hi"\n<b> & नमस्ते', "deep": {"list": [1, 2.5, True, None, "x"], "empty": {}}, "none": None,
        "yes": False, "small": -1.5e-7, "large": 10**12}


def _tool(name: str, description: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, **more}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = _tool("get_weather", "Weather of a <city>.", {
    "city": {"type": "string", "description": "The city's name"},
    "days": {"type": "integer", "description": "How many days", "minimum": 1},
    "unit": {"type": "string", "enum": ["C", "F"]}}, required=["city"])
NOW = _tool("now", "The time.", {})
STORE = _tool("store", "Stores.", {
    "deep": {"type": "object", "description": "Anything", "properties": {
        "list": {"type": "array", "items": {"type": "number"}, "description": "Numbers"}}},
    "text": {"type": ["string", "null"], "description": "Words"}}, required=["deep"], additionalProperties=False)


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _user(text: Any) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


def _call(number: int, name: str, arguments: dict[str, Any]) -> Message:
    return {"id": f"call{number:05d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(number: int, name: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": f"call{number:05d}", "name": name, "content": text}


@dataclass(frozen=True)
class Conversation:
    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    prompt: bool = True
    continues: bool = False
    variables: dict[str, Any] = field(default_factory=dict)


_ASKED, _CALLED = _user("Weather in Oslo?"), _call(1, "get_weather", ARGUMENTS)
_COLD = _result(1, "get_weather", "5 degrees")
CONVERSATIONS = {
    "user": Conversation([_user("Hello there")]),
    "system": Conversation([_system("Be brief."), _user("Hello")]),
    "no prompt": Conversation([_system("Be brief."), _user("Hello"), _assistant("Hi!")], prompt=False),
    "turns": Conversation([_system("  Be brief.\n"), _user('What is "1 < 2"?'), _assistant(" true & नमस्ते\n"),
                           _user("Thanks 🔥\n")]),
    "tools": Conversation([_system("Be brief."), _user("Weather?")], [WEATHER, NOW, STORE]),
    "tools, no system": Conversation([_user("Weather?")], [WEATHER]),
    "called": Conversation([_ASKED, _assistant("", tool_calls=[_CALLED]), _result(1, "get_weather", '{"t": 5}')],
                           [WEATHER, NOW]),
    "called, said": Conversation([_system("S"), _ASKED, _assistant("I look.", tool_calls=[_CALLED]), _COLD,
                                  _assistant("It is 5."), _user("And now?")], [WEATHER, NOW]),
    "called, hard": Conversation([_user("Store"), _assistant("", tool_calls=[_call(1, "store", HARD)]),
                                  _result(1, "store", "ok")], [STORE]),
    "called, empty": Conversation([_user("Time?"), _assistant("", tool_calls=[_call(1, "now", {})]),
                                   _result(1, "now", "12:00")], [NOW]),
    "called twice": Conversation([_user("Both?"), _assistant("", tool_calls=[_CALLED, _call(2, "now", {})]),
                                  _COLD, _result(2, "now", "12:00")], [WEATHER, NOW]),
    "called, no tools": Conversation([_ASKED, _assistant("", tool_calls=[_CALLED]), _COLD, _assistant("Cold."),
                                      _user("ok")]),
    "called, no content": Conversation([_ASKED, {"role": "assistant", "tool_calls": [_CALLED]}, _COLD], [WEATHER]),
    "reasoned": Conversation([_user("Why?"), _assistant("Because.", reasoning_content="Hmm, let me think."),
                              _user("Really?")]),
    "reasoned, called": Conversation([_user("Weather?"), _assistant("", reasoning_content="I must look.",
                                                                    tool_calls=[_CALLED]), _COLD], [WEATHER]),
    "marks in content": Conversation([_user("Why?"), _assistant("<think>\nHmm.\n</think>\n\nBecause."),
                                      _user("Really?")]),
    "thinking off": Conversation([_user("Why?")], variables={"enable_thinking": False, "thinking": False}),
    "thinking on": Conversation([_system("S"), _user("Why?")], variables={
        "enable_thinking": True, "thinking": True, "reasoning_effort": "high"}),
    "developer": Conversation([{"role": "developer", "content": "Be brief."}, _user("Hello")]),
    "empty": Conversation([_user(""), _assistant(""), _user("x")]),
    "continued": Conversation([_user("Tell"), _assistant("Once upon a")], continues=True),
    "continued, spaced": Conversation([_user("Tell"), _assistant(" Once ")], continues=True),
}


def as_sent(messages: list[Message]) -> list[Message]:
    """As a client sends them: arguments are text."""
    made = copy.deepcopy(messages)
    for message in made:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    return made


def prepared(conversation: Conversation, source: str, *, reads_tools: bool, shows_calls: bool,
             takes_system: bool) -> list[Message]:
    """Messages with arguments as objects, as a template with this source is given them."""
    made = [{"content": "", **copy.deepcopy(message)} for message in conversation.messages]
    for message in made:
        if message["role"] == "developer" and "developer" not in source:
            message["role"] = "system"
    has_calls = any(message["role"] == "tool" for message in made)
    if reads_tools or (has_calls and shows_calls and not conversation.tools):
        return made
    return as_text(as_sent(made), conversation.tools, takes_system=takes_system)
