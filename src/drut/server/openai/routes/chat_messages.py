"""Checks the messages of a request and converts them for chat templates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from drut.parse.offer import SHORT_ID
from drut.server.openai.protocol.chat import PARTS, ROLES, ChatMessage, ContentPart
from drut.server.openai.protocol.errors import ApiError, not_among
from drut.server.openai.protocol.tools import FUNCTION, ToolCall
from drut.server.service import Service

SHORT = 9  # characters of the ids that some templates require


def plain_messages(messages: Sequence[ChatMessage], service: Service, *,
                   short_ids: bool = False) -> list[dict[str, Any]]:
    """Returns messages with their text as one string. ApiError names the path of an unsupported part or role.

    A tool result gets the name of its function. With `short_ids`, ids of another shape are replaced.
    """
    service.limits.check_messages(len(messages))
    plain = []
    names: dict[str, str] = {}  # of functions, by the id of the call
    for i, message in enumerate(messages):
        if message.role not in ROLES:
            raise not_among(f"messages[{i}].role", message.role, ROLES)
        made: dict[str, Any] = {"role": message.role, "content": _text(i, message)}
        if message.name is not None:
            made["name"] = message.name
        _add_calls(i, message, made, names, short_ids)
        plain.append(made)
    return plain


def _add_calls(index: int, message: ChatMessage, made: dict[str, Any], names: dict[str, str], short_ids: bool) -> None:
    """Adds an assistant's reasoning and tool calls, or the call that a tool result belongs to, to `made`."""
    if message.role == "assistant":
        reasoning = message.reasoning_content or message.reasoning
        if reasoning:
            made["reasoning_content"] = reasoning
        if message.tool_calls:
            made["tool_calls"] = [_call(index, j, call, short_ids) for j, call in enumerate(message.tool_calls)]
            names.update((call.id, call.function.name) for call in message.tool_calls)
    elif message.tool_calls or message.reasoning_content or message.reasoning:
        field = "tool_calls" if message.tool_calls else "reasoning_content"
        path = f"messages[{index}].{field}"
        raise ApiError(400, f"{path}: only an assistant has them", param=path)
    path = f"messages[{index}].tool_call_id"
    if message.role == "tool":
        if not message.tool_call_id:
            raise ApiError(400, f"{path} is missing", param=path)
        made["tool_call_id"] = _id(message.tool_call_id, short_ids)
        made.setdefault("name", names.get(message.tool_call_id, "function"))
    elif message.tool_call_id is not None:
        raise ApiError(400, f"{path}: only a message of role tool has one", param=path)


def _call(index: int, number: int, call: ToolCall, short_ids: bool) -> dict[str, Any]:
    if call.type != FUNCTION:
        raise not_among(f"messages[{index}].tool_calls[{number}].type", call.type, (FUNCTION,))
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": _id(call.id, short_ids), "type": "function", "function": function}


def _id(given: str, short: bool) -> str:
    """Returns the id, or a hash of nine letters and digits if a short id is required."""
    if not short or (len(given) == SHORT and all(c in SHORT_ID for c in given)):
        return given
    return hashlib.sha256(given.encode(errors="replace")).hexdigest()[:SHORT]


def _text(index: int, message: ChatMessage) -> str:
    path = f"messages[{index}].content"
    if message.refusal is not None:
        return _refusal(index, message)
    if message.content is None:
        if message.role == "assistant" and (message.tool_calls or message.reasoning_content or message.reasoning):
            return ""
        raise ApiError(400, f"{path} is missing", param=path)
    if isinstance(message.content, str):
        return message.content
    return "".join(_of_part(f"{path}[{j}]", part) for j, part in enumerate(message.content))


def _refusal(index: int, message: ChatMessage) -> str:
    """Returns an assistant's refusal, which replaces content."""
    path = f"messages[{index}].refusal"
    if message.role != "assistant" or message.content:
        why = "there is content too" if message.role == "assistant" else "only an assistant has one"
        raise ApiError(400, f"{path}: {why}", param=path)
    return message.refusal or ""


def _of_part(path: str, part: str | ContentPart) -> str:
    """Returns the text of a part of any supported type."""
    if isinstance(part, str):
        return part
    if part.type not in PARTS:
        raise not_among(f"{path}.type", part.type, PARTS)
    field = "refusal" if part.type == "refusal" else "text"
    text: str | None = getattr(part, field)
    if text is None:
        raise ApiError(400, f"{path}.{field} is missing", param=f"{path}.{field}")
    return text
