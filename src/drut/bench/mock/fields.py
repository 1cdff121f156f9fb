"""The fields of a script as text, from their declarations."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from drut.bench.mock.script import Constant, Fault, Script, ScriptStart, Stall, Stream, Time

WIDTH = 100
_PARTS = (("a script", Script), ("start", ScriptStart), ("one of stalls", Stall), ("one of faults", Fault),
          ("stream", Stream))


def fields_text() -> str:
    """Returns every field with its default and meaning, then the kinds of a time."""
    lines = []
    for title, part in _PARTS:
        lines += [f"{title}:", *_fields(part), ""]
    lines.append("a time (ttft, itl) has a kind, and the fields of that kind:")
    for kind in get_args(Time):
        names = ", ".join(kind.__struct_fields__)
        lines += _wrapped(f"{kind.__struct_config__.tag} ({names})", " ".join((kind.__doc__ or "").split()))
    return "\n".join(lines)


def _fields(part: type[msgspec.Struct]) -> Iterator[str]:
    hints = get_type_hints(part, include_extras=True)
    for field in msgspec.structs.fields(part):
        yield from _wrapped(f"{field.name}{_default(field)}", _meaning(hints[field.name]))


def _wrapped(name: str, meaning: str) -> list[str]:
    return textwrap.wrap(f"{name}: {meaning}", WIDTH, initial_indent="  ", subsequent_indent="      ")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return ""
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, Constant):
        return f" = {value.ms:g} ms"
    if isinstance(value, msgspec.Struct):
        return ""
    return f" = {msgspec.json.encode(value).decode()}"


def _meaning(hint: Any) -> str:
    """Returns the description of a field's type. Raises TypeError if it has none."""
    if get_origin(hint) is Annotated:
        for meta in hint.__metadata__:
            if meta.description:
                return str(meta.description)
    raise TypeError(f"no description: {hint}")
