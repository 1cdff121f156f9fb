"""Messages of a request, checked, in the form that chat templates are given."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from drut.parse.calls import SHORT_ID
from drut.server.protocol.chat import Message
from drut.server.protocol.errors import ApiError, unsupported
from drut.server.protocol.tools import ToolCall
from drut.server.service import Service

ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))
MESSAGE_FIELDS = frozenset(Message.__struct_encode_fields__)
EMPTY = (b"null", b"[]")
SHORT = 9  # characters of the ids that some templates insist on


class _Raw(msgspec.Struct):
    messages: list[dict[str, msgspec.Raw]]


def plain_messages(messages: Sequence[Message], body: bytes, service: Service, *,
                   short_ids: bool = False) -> list[dict[str, Any]]:
    """Messages with their text as one string. ApiError names a part, role or field that is not supported.

    A result is told with the name of its function. With `short_ids` ids of another shape are replaced.
    """
    service.limits.check_messages(len(messages))
    plain = []
    names: dict[str, str] = {}  # of functions, by the id of the call
    for i, (message, raw) in enumerate(zip(messages, msgspec.json.decode(body, type=_Raw).messages, strict=True)):
        for name, value in raw.items():
            if name not in MESSAGE_FIELDS and bytes(value) not in EMPTY:
                raise unsupported(f"messages[{i}].{name[:40]}")
        if message.role not in ROLES:
            raise unsupported(f"messages[{i}].role {message.role[:40]!r}")
        made: dict[str, Any] = {"role": message.role, "content": _text(i, message)}
        if message.name is not None:
            made["name"] = message.name
        _add_calls(i, message, made, names, short_ids)
        plain.append(made)
    return plain


def _add_calls(index: int, message: Message, made: dict[str, Any], names: dict[str, str], short_ids: bool) -> None:
    """What an assistant thought and called, and which call a result is of."""
    if message.role == "assistant":
        thought = message.reasoning_content or message.reasoning
        if thought:
            made["reasoning_content"] = thought
        if message.tool_calls:
            made["tool_calls"] = [_call(index, j, call, short_ids) for j, call in enumerate(message.tool_calls)]
            names.update((call.id, call.function.name) for call in message.tool_calls)
    elif message.tool_calls or message.reasoning_content or message.reasoning:
        field = "tool_calls" if message.tool_calls else "reasoning_content"
        raise ApiError(400, f"messages[{index}].{field}: only an assistant has them", param="messages")
    if message.role == "tool":
        if not message.tool_call_id:
            raise ApiError(400, f"messages[{index}].tool_call_id is missing", param="messages")
        made["tool_call_id"] = _id(message.tool_call_id, short_ids)
        made.setdefault("name", names.get(message.tool_call_id, "function"))
    elif message.tool_call_id is not None:
        raise ApiError(400, f"messages[{index}].tool_call_id: only a message of role tool has one", param="messages")


def _call(index: int, number: int, call: ToolCall, short_ids: bool) -> dict[str, Any]:
    if call.type != "function":
        raise unsupported(f"messages[{index}].tool_calls[{number}] of type {call.type[:40]!r}")
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": _id(call.id, short_ids), "type": "function", "function": function}


def _id(given: str, short: bool) -> str:
    """The same id, or one of nine letters and digits that stands for it."""
    if not short or (len(given) == SHORT and all(c in SHORT_ID for c in given)):
        return given
    return hashlib.sha256(given.encode(errors="replace")).hexdigest()[:SHORT]


def _text(index: int, message: Message) -> str:
    if message.content is None:
        if message.role == "assistant" and (message.tool_calls or message.reasoning_content or message.reasoning):
            return ""
        raise ApiError(400, f"messages[{index}].content is missing", param="messages")
    if isinstance(message.content, str):
        return message.content
    texts = []
    for j, part in enumerate(message.content):
        if part.type != "text":
            raise unsupported(f"messages[{index}].content[{j}] of type {part.type[:40]!r}")
        if part.text is None:
            raise ApiError(400, f"messages[{index}].content[{j}].text is missing", param="messages")
        texts.append(part.text)
    return "".join(texts)
