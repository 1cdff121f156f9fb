"""Grammars of calls: what an answer must look like so that it calls the tools it may, with arguments that fit."""

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

MOST_CALLS = 16  # of a constrained answer
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class Tool:
    """A function that may be called. `strict`: its arguments fit `parameters`, a JSON schema, also where it is up to
    the model whether to call. `place`: among all tools of the request, for errors; None: where it is among those
    that may be called."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool = False
    place: int | None = None


def constraint(form: Format, tools: Sequence[Tool], choice: Literal["auto", "required"], tokenizer: Tokenizer, *,
               parallel: bool = True, bounds: Bounds = FREE, answer: Constraint | None = None) -> Constraint | None:
    """Calls of `tools` and nothing else, one or, with `parallel`, several; for `auto` free text in which calls keep to
    the format, or None where no tool is strict. With `answer`, for `auto`: either calls alone, or what `answer` allows.
    RequestError names the tool whose schema is no good."""
    if choice == "auto" and answer is None and not any(tool.strict for tool in tools):
        return None
    if answer is not None and not _marked(form):
        _check_told_apart(tools)
    rules = [_rule(i, tool, form, choice, tokenizer, bounds, alone=answer is None) for i, tool in enumerate(tools)]
    rules.append(f"inside: {' | '.join(f'call_{i}' for i in range(len(tools)))}")
    between = quoted(form.between or "\n")
    mark = _literal(form.opens, form, tokenizer) if _marked(form) else ""
    rules.append(f"more: {between}? {mark} inside")
    more = f"more{{0,{MOST_CALLS - 1}}}" if parallel else ""
    free = choice == "auto"
    if answer is not None:
        either = [f"start: {mark} inside {more} | answer", *rules, answer.as_rule("answer")]
        return Constraint.composed("\n".join([*either, ""]))
    head = _start(form, mark, more, free=free, special=mark.startswith("<["))
    return Constraint.composed("\n".join([*head, *rules, ""]))


def _start(form: Format, mark: str, more: str, *, free: bool, special: bool) -> list[str]:
    """From where the first call comes on; with `free`, after any text or after none."""
    if not free:
        return [f"start: {mark} inside {more}"]
    if form.bare:  # the beginning of an answer alone tells a call from text
        return [f"start: inside {more} | TEXT", r"TEXT: /([^\s{\[](.|\n)*)?/"]
    if special:  # no text can be mistaken for the mark
        return [f"start: TEXT ({mark} inside {more})?", r"TEXT: /(.|\n)*/"]
    return [f"start: TEXT | open inside {more}", f"open[lazy]: TEXT {mark}", r"TEXT: /(.|\n)*/"]


def _rule(index: int, tool: Tool, form: Format, choice: str, tokenizer: Tokenizer, bounds: Bounds, *,
          alone: bool) -> str:
    """One call, from behind its mark on. If not `alone`, a call without a mark is one JSON value."""
    schema = tool.parameters if choice == "required" or tool.strict else ANY_OBJECT
    try:
        schema = _of_object(schema)
        Constraint.json_schema(schema)  # for errors in what the client said
        fitting = Constraint.json_schema(bounded(closed(schema), bounds)).source  # type: ignore[arg-type]
    except RequestError as error:
        raise RequestError(f"tools[{_place(index, tool)}].function.parameters: {error}") from None
    before, after = form.tag(tool.name)
    before = before.removeprefix(form.opens) if _marked(form) else before
    if not (alone or _marked(form)):
        return f"call_{index}: %json {_as_json(tool, form)}"
    parts = [_literal(before, form, tokenizer), f"%json {fitting}", _literal(after, form, tokenizer)]
    return f"call_{index}: {' '.join(filter(None, parts))}"


def _check_told_apart(tools: Sequence[Tool]) -> None:
    """Refuses strict tools where calls have no mark, since a text in the format may look like a call."""
    for i, tool in enumerate(tools):
        if tool.strict:
            raise RequestError(f"tools[{_place(i, tool)}].function.strict: this model's calls have no mark that sets "
                               "them apart from an answer in a format")


def _place(index: int, tool: Tool) -> int:
    return index if tool.place is None else tool.place


def _as_json(tool: Tool, form: Format) -> str:
    """Returns the schema of a whole call with any arguments."""
    shape = json.loads(f"{form.before}{{}}{form.after}")
    fields = {key: ANY_OBJECT if value == {} else {"const": tool.name} for key, value in shape.items()}
    return Constraint.json_schema({"type": "object", "properties": fields, "required": list(fields),
                                   "additionalProperties": False}).source


def _of_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema, of objects alone: arguments are nothing else. RequestError where it has none."""
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise RequestError("type: arguments are an object")
    return {**schema, "type": "object"}


def _marked(form: Format) -> bool:
    """Whether a call is written with its mark, and not only may be."""
    return bool(form.opens) and form.before.startswith(form.opens)


def _literal(text: str, form: Format, tokenizer: Tokenizer) -> str:
    """Text as a grammar has it; a special token stands for itself, since ordinary ones never spell it."""
    for mark in form.marks:
        token = tokenizer.id_of(mark)
        if token in tokenizer.special_ids and mark in text:
            before, _, after = text.partition(mark)
            parts = [_literal(before, form, tokenizer), f"<[{token}]>", _literal(after, form, tokenizer)]
            return " ".join(filter(None, parts))
    return quoted(text) if text else ""
