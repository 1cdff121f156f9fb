"""Tools that a request offers, and its tool choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from drut.parse.calling import Tool
from drut.server.openai.protocol.errors import ApiError, not_among

NAME = r"^[A-Za-z0-9_.-]{1,64}$(?!\n)"  # $ alone lets a line end follow
FUNCTION = "function"  # the one kind of tool
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class Function(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A function. `parameters`: a JSON schema of an object. `strict`: calls are constrained to match it."""

    name: Annotated[str, Meta(pattern=NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class OfferedTool(msgspec.Struct, kw_only=True):
    """A tool of type `function`; any other type is an error that names it."""

    type: str = FUNCTION
    function: Function | None = None


class ChosenFunction(msgspec.Struct):
    name: str


class NamedChoice(msgspec.Struct, kw_only=True):
    """A tool choice that names the function to call."""

    type: str = FUNCTION
    function: ChosenFunction | None = None


class CalledFunction(msgspec.Struct):
    """A called function. `arguments`: the text of a JSON object."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, kw_only=True):
    """A call that the model has made."""

    id: str
    type: str = FUNCTION
    function: CalledFunction


ToolChoice = str | NamedChoice
CHOICES = ("none", "auto", "required")


def check_tools(tools: list[OfferedTool] | None, most: int) -> list[Function]:
    """Returns the offered functions. ApiError 400 for another type, a duplicate name, or too many."""
    functions: list[Function] = []
    names: set[str] = set()
    if len(tools or ()) > most:
        raise ApiError(400, f"tools: {len(tools or ())} tools; at most {most} are allowed (--max-tools)", param="tools")
    for i, tool in enumerate(tools or ()):
        path = f"tools[{i}].function"
        if tool.type != FUNCTION:
            raise not_among(f"tools[{i}].type", tool.type, (FUNCTION,))
        if tool.function is None:
            raise ApiError(400, f"{path} is missing", param=path)
        if tool.function.name in names:
            raise ApiError(400, f"{path}.name: {tool.function.name!r} is a duplicate", param=f"{path}.name")
        names.add(tool.function.name)
        functions.append(tool.function)
    return functions


def chosen(choice: ToolChoice | None, functions: list[Function]) -> str | Function:
    """Returns one of CHOICES, or the function that must be called. ApiError 400 for an invalid choice."""
    if choice is None:
        return "auto" if functions else "none"
    if isinstance(choice, str):
        if choice not in CHOICES:
            raise ApiError(400, f"tool_choice must be one of {', '.join(CHOICES)}, or an object that names a "
                                f"function, not {choice[:40]!r}", param="tool_choice")
        if choice == "required" and not functions:
            raise ApiError(400, "tool_choice: there are no tools to call", param="tool_choice")
        return choice if functions else "none"
    if choice.type != FUNCTION:
        raise not_among("tool_choice.type", choice.type, (FUNCTION,))
    if choice.function is None:
        raise ApiError(400, "tool_choice.function is missing", param="tool_choice.function")
    for function in functions:
        if function.name == choice.function.name:
            return function
    raise ApiError(400, f"tool_choice.function.name: {choice.function.name[:64]!r} is not among the tools",
                   param="tool_choice.function.name")


def as_tools(functions: Sequence[Function], choice: str | Function) -> list[Tool]:
    """Returns the tools that may be called."""
    return [Tool(f.name, f.parameters or NO_PARAMETERS, bool(f.strict), i)
            for i, f in enumerate(functions) if isinstance(choice, str) or f is choice]


def for_template(function: Function) -> dict[str, Any]:
    """Returns a function in the shape that chat templates expect."""
    shown: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        shown["description"] = function.description
    return {"type": "function", "function": shown | {"parameters": function.parameters or NO_PARAMETERS}}
