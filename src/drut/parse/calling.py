"""Grammars of tool calls: they constrain an output to calls of the offered tools, with arguments that fit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drut.constrain import Constraint
from drut.constrain.lark import quoted
from drut.errors import RequestError
from drut.model.tokenizer import Tokenizer
from drut.parse.formats import Format
from drut.parse.narrowing import FREE, Bounds, bounded, closed

MAX_CALLS = 16  # maximum of calls in a constrained output
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class Tool:
    """A function that may be called. `strict`: its arguments must fit `parameters`, a JSON schema, even if the model
    may choose not to call. `place`: its index among all tools of the request, for errors; None: its index among the
    tools that may be called."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False
    place: int | None = None


def constraint(form: Format, tools: Sequence[Tool], choice: Literal["auto", "required"], tokenizer: Tokenizer, *,
               parallel: bool = True, bounds: Bounds = FREE, answer: Constraint | None = None) -> Constraint | None:
    """Returns the constraint to calls of `tools` only, one or, with `parallel`, several. For `auto` it is free text in
    which calls have the format, or None if no tool is strict; with `answer`, either only calls, or what `answer`
    allows. Raises RequestError, which names the tool, for an invalid schema."""
    if choice == "auto" and answer is None and not any(tool.strict for tool in tools):
        return None
    if answer is not None and not _marked(form):
        _check_distinct(tools)
    rules = [_rule(i, tool, form, choice, tokenizer, bounds, alone=answer is None) for i, tool in enumerate(tools)]
    rules.append(f"inside: {' | '.join(f'call_{i}' for i in range(len(tools)))}")
    between = quoted(form.between or "\n")
    mark = _literal(form.opens, form, tokenizer) if _marked(form) else ""
    rules.append(f"more: {between}? {mark} inside")
    more = f"more{{0,{MAX_CALLS - 1}}}" if parallel else ""
    free = choice == "auto"
    if answer is not None:
        either = [f"start: {mark} inside {more} | answer", *rules, answer.as_rule("answer")]
        return Constraint.composed("\n".join([*either, ""]))
    head = _start(form, mark, more, free=free, special=mark.startswith("<["))
    return Constraint.composed("\n".join([*head, *rules, ""]))


def _start(form: Format, mark: str, more: str, *, free: bool, special: bool) -> list[str]:
    """Returns the rules from the first call on; with `free`, text may precede it."""
    if not free:
        return [f"start: {mark} inside {more}"]
    if form.bare:  # only the beginning of an output distinguishes a call from text
        return [f"start: inside {more} | TEXT", r"TEXT: /([^\s{\[](.|\n)*)?/"]
    if special:  # the mark is a special token, so no text can be mistaken for it
        return [f"start: TEXT ({mark} inside {more})?", r"TEXT: /(.|\n)*/"]
    return [f"start: TEXT | open inside {more}", f"open[lazy]: TEXT {mark}", r"TEXT: /(.|\n)*/"]


def _rule(index: int, tool: Tool, form: Format, choice: str, tokenizer: Tokenizer, bounds: Bounds, *,
          alone: bool) -> str:
    """Returns the rule of one call, from behind its mark on. If not `alone`, a call without a mark is one JSON
    value."""
    schema = tool.parameters if choice == "required" or tool.strict else ANY_OBJECT
    try:
        schema = _of_object(schema)
        Constraint.json_schema(schema)  # raises errors of the client's schema
        fitting = Constraint.json_schema(bounded(closed(schema), bounds)).source  # type: ignore[arg-type]
    except RequestError as error:
        raise RequestError(f"tools[{_place(index, tool)}].function.parameters: {error}") from None
    before, after = form.tag(tool.name)
    before = before.removeprefix(form.opens) if _marked(form) else before
    if not (alone or _marked(form)):
        return f"call_{index}: %json {_as_json(tool, form)}"
    parts = [_literal(before, form, tokenizer), f"%json {fitting}", _literal(after, form, tokenizer)]
    return f"call_{index}: {' '.join(filter(None, parts))}"


def _check_distinct(tools: Sequence[Tool]) -> None:
    """Refuses strict tools if calls have no mark, because a text in the format may look like a call."""
    for i, tool in enumerate(tools):
        if tool.strict:
            raise RequestError(f"tools[{_place(i, tool)}].function.strict: this model's calls have no mark that "
                               "distinguishes them from an answer in a format")


def _place(index: int, tool: Tool) -> int:
    return index if tool.place is None else tool.place


def _as_json(tool: Tool, form: Format) -> str:
    """Returns the schema of a whole call with any arguments."""
    shape = json.loads(f"{form.before}{{}}{form.after}")
    fields = {key: ANY_OBJECT if value == {} else {"const": tool.name} for key, value in shape.items()}
    return Constraint.json_schema({"type": "object", "properties": fields, "required": list(fields),
                                   "additionalProperties": False}).source


def _of_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the schema restricted to objects, because arguments are objects. Raises RequestError if it excludes
    objects."""
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise RequestError("type: arguments must be an object")
    return {**schema, "type": "object"}


def _marked(form: Format) -> bool:
    """Whether a call must have its mark."""
    return bool(form.opens) and form.before.startswith(form.opens)


def _literal(text: str, form: Format, tokenizer: Tokenizer) -> str:
    """Returns text as a grammar's literal. A special token is a token of its own, because ordinary ones never spell
    it."""
    for mark in form.marks:
        token = tokenizer.id_of(mark)
        if token in tokenizer.special_ids and mark in text:
            before, _, after = text.partition(mark)
            parts = [_literal(before, form, tokenizer), f"<[{token}]>", _literal(after, form, tokenizer)]
            return " ".join(filter(None, parts))
    return quoted(text) if text else ""
