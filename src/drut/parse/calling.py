"""Grammars of calls: what an answer must look like so that it calls the tools it may, with arguments that fit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drut.constrain import Constraint
from drut.errors import RequestError
from drut.model.tokenizer import Tokenizer
from drut.parse.formats import Format

MOST_CALLS = 16  # of a constrained answer
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class Tool:
    """A function that may be called. `strict`: its arguments fit `parameters`, a JSON schema, also where it is up to
    the model whether to call."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False


def constraint(form: Format, tools: Sequence[Tool], choice: Literal["auto", "required"], tokenizer: Tokenizer, *,
               parallel: bool = True) -> Constraint | None:
    """Calls of `tools` and nothing else, one or, with `parallel`, several; for `auto` free text in which calls keep to
    the format, or None where no tool is strict. RequestError names the tool whose schema is no good."""
    if choice == "auto" and not any(tool.strict for tool in tools):
        return None
    rules = []
    for i, tool in enumerate(tools):
        schema = tool.parameters if choice == "required" or tool.strict else ANY_OBJECT
        try:
            Constraint.json_schema(schema)
        except RequestError as error:
            raise RequestError(f"tools[{i}].function.parameters: {error}") from None
        before, after = form.tag(tool.name)
        parts = [_literal(before, form, tokenizer), f"%json {json.dumps(schema)}", _literal(after, form, tokenizer)]
        rules.append(f"call_{i}: {' '.join(filter(None, parts))}")
    names = " | ".join(f"call_{i}" for i in range(len(tools)))
    more = f" (between? call){{0,{MOST_CALLS - 1}}}" if parallel else ""
    rules += [f"call: {names}", f"calls: call{more}", f"between: {json.dumps(form.between or chr(10))}"]
    return Constraint.lark("\n".join([*_start(form, choice, tokenizer), *rules, ""]))


def _start(form: Format, choice: str, tokenizer: Tokenizer) -> list[str]:
    if choice == "required":
        return ["start: calls"]
    if not form.opens or form.bare:  # only the beginning of an answer tells a call
        return ["start: calls | TEXT", r"TEXT: /([^\s{\[](.|\n)*)?/"]
    if _token(form.opens, tokenizer) is not None:  # no text can be mistaken for it
        return ["start: TEXT calls?", r"TEXT: /(.|\n)*/"]
    raise NotImplementedError


def _literal(text: str, form: Format, tokenizer: Tokenizer) -> str:
    """Text as a grammar has it; a special token stands for itself, since ordinary ones never spell it."""
    for mark in filter(None, (form.opens, *form.inner)):
        if (token := _token(mark, tokenizer)) is not None and mark in text:
            before, _, after = text.partition(mark)
            parts = [_literal(before, form, tokenizer), f"<[{token}]>", _literal(after, form, tokenizer)]
            return " ".join(filter(None, parts))
    return json.dumps(text, ensure_ascii=False) if text else ""


def _token(mark: str, tokenizer: Tokenizer) -> int | None:
    """The special token that is spelled so."""
    token = tokenizer.id_of(mark)
    return token if token in tokenizer.special_ids else None
