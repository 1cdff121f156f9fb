"""Messages as programs give them: text, or OpenAI's content parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drut.errors import RequestError

TEXTS = {"text": "text", "refusal": "refusal"}  # the types of parts that are text, and the field that has it


def with_text(messages: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Returns the messages with their content as text. Raises RequestError with the path of what is no text."""
    if isinstance(messages, str) or not isinstance(messages, Sequence):
        raise RequestError(f"messages must be a list of dicts with role and content, not {type(messages).__name__}")
    return [_with_text(f"messages[{i}]", message) for i, message in enumerate(messages)]


def _with_text(path: str, message: Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{path} must be a dict with role and content, not {type(message).__name__}", field=path)
    if not isinstance(message.get("role"), str):
        raise RequestError(f"{path}.role is missing or not text", field=f"{path}.role")
    content = message.get("content")
    if content is None or isinstance(content, str):
        return message
    path = f"{path}.content"
    if not isinstance(content, Sequence):
        raise RequestError(f"{path} must be text or a list of parts, not {type(content).__name__}", field=path)
    return {**message, "content": "".join(_of_part(f"{path}[{j}]", part) for j, part in enumerate(content))}


def _of_part(path: str, part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise RequestError(f"{path} must be text or a dict with type and text, not {type(part).__name__}", field=path)
    kind = part.get("type")
    if kind not in TEXTS:
        raise RequestError(f"{path}: type {kind!r} is not supported; {' and '.join(TEXTS)} are", field=path)
    text = part.get(TEXTS[kind])
    if not isinstance(text, str):
        raise RequestError(f"{path}.{TEXTS[kind]} is missing or not text", field=path)
    return text
