"""Compares request bodies with their struct types: finds unknown fields and the values that an enum allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from msgspec import inspect

STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")  # of a path such as messages[0].role
MAX_NAME = 64  # characters of a field name from a client


@dataclass(frozen=True)
class FormFields:
    """Describes a type: the fields of its structs and the values of its enums, at every depth."""

    fields: Mapping[str, FormFields] = field(default_factory=dict)  # of an object; empty if it may have any field
    items: FormFields | None = None  # of an array
    allowed: tuple[object, ...] = ()  # values of an enum


class Unknown(NamedTuple):
    """A field that the type does not have. `kind` is its path with `[]` for each index."""

    path: str
    kind: str
    value: object


@cache
def form_of(type_: type) -> FormFields:
    """Returns the form of a struct type."""
    return _form(inspect.type_info(type_))


def unknown_fields(value: object, form: FormFields, path: str = "", kind: str = "") -> Iterator[Unknown]:
    """Yields the fields of decoded JSON that `form` does not have, at every depth. Null counts as absent."""
    if isinstance(value, dict) and form.fields:
        for name, inner in value.items():
            here, of_kind = f"{path}.{shown_name(name)}".lstrip("."), f"{kind}.{name}".lstrip(".")
            if (known := form.fields.get(name)) is not None:
                yield from unknown_fields(inner, known, here, of_kind)
            elif inner is not None:
                yield Unknown(here, of_kind, inner)
    elif isinstance(value, list) and form.items is not None:
        for i, inner in enumerate(value):
            yield from unknown_fields(inner, form.items, f"{path}[{i}]", f"{kind}[]")


def allowed_at(form: FormFields, path: str) -> tuple[object, ...]:
    """Returns the values of the enum at `path`, or none if it is no enum."""
    at: FormFields | None = form
    for step in STEP.finditer(path):
        at = None if at is None else at.fields.get(step[1]) if step[1] else at.items
    return at.allowed if at is not None else ()


def _form(kind: Any) -> FormFields:
    match kind:
        case inspect.Metadata(type=inner):
            return _form(inner)
        case inspect.StructType(fields=fields):
            return FormFields({f.encode_name: _form(f.type) for f in fields})
        case inspect.ListType(item_type=item):
            items = _form(item)
            return FormFields(items=items if items != FormFields() else None)
        case inspect.LiteralType(values=values):
            return FormFields(allowed=tuple(values))
        case inspect.UnionType(types=types):
            parts = [_form(t) for t in types]
            return FormFields({name: inner for part in parts for name, inner in part.fields.items()},
                              next((part.items for part in parts if part.items is not None), None),
                              tuple(value for part in parts for value in part.allowed))
    return FormFields()


def shown_name(name: str) -> str:
    """Returns a field name from a client as a header can contain it."""
    return "".join(c if c.isascii() and c.isprintable() and c not in ",\"" else "?" for c in name[:MAX_NAME])
