"""Makes flags from a struct's fields: the description of a field is the help of its flag."""

from __future__ import annotations

import argparse
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

_METAVARS = {int: "N", float: "X", str: "S"}


def add_struct_flags(parser: argparse.ArgumentParser, kind: type[msgspec.Struct]) -> None:
    """Adds a flag for each field, without defaults, so that `given` returns only what was given."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        form, description = _form(hint)
        default = fields[name].default
        if default is not msgspec.NODEFAULT and default is not None:
            description += f" (default: {('no', 'yes')[default] if form is bool else default})"
        flag, description = "--" + name.replace("_", "-"), description.replace("%", "%%")
        if form is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=description)
        elif get_origin(form) is Literal:
            parser.add_argument(flag, choices=get_args(form), help=description)
        elif get_origin(form) is list:
            parser.add_argument(flag, nargs="+", action="extend", metavar="S", help=description)
        else:
            parser.add_argument(flag, type=form, metavar=_METAVARS[form], help=description)


def given(args: argparse.Namespace, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns the fields whose flags were given."""
    values = {name: getattr(args, name) for name in kind.__struct_fields__}
    return {name: value for name, value in values.items() if value is not None}


def _form(hint: Any) -> tuple[Any, str]:
    """Returns the type without its bounds and without None, and its description."""
    description = ""
    while True:
        if get_origin(hint) is Annotated:
            for meta in hint.__metadata__:
                description = description or meta.description or ""
            hint = get_args(hint)[0]
        elif get_origin(hint) in (Union, types.UnionType):
            hint = next(part for part in get_args(hint) if part is not type(None))
        else:
            return hint, description
