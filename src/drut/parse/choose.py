"""Which marks a model thinks between, and how it writes calls: told by its chat template, unless somebody says so."""

from __future__ import annotations

import re
from typing import NamedTuple

from drut.errors import RequestError, UnsupportedError
from drut.model.template import ChatTemplate
from drut.model.templates import ChatTemplates
from drut.parse.formats import FORMATS, HERMES, JSON, LLAMA3, MISTRAL, MISTRAL_NAMED, Format

AUTO, NONE = "auto", "none"
TAG = re.compile(r"tag:([A-Za-z][A-Za-z0-9_:-]{0,40})")
UNKNOWN = ("<function=", "<invoke", "tool▁call", "<tool_code>", "<|tool_call", "<|channel|>", "<arg_key>")


class Marks(NamedTuple):
    """What a thought stands between."""

    opens: str
    closes: str


FAMILIES = {
    "think": Marks("<think>", "</think>"),
    "mistral": Marks("[THINK]", "[/THINK]"),
    "seed": Marks("<seed:think>", "</seed:think>"),
}


def marks(setting: str, templates: ChatTemplate | ChatTemplates | None) -> Marks | None:
    """Of the family `setting`, or for `auto` those whose end a template looks for. RequestError for no family."""
    if setting == AUTO:
        source = templates.source if templates is not None else ""
        return next((m for m in FAMILIES.values() if m.closes in source), None)
    if setting == NONE:
        return None
    if setting in FAMILIES:
        return FAMILIES[setting]
    if found := TAG.fullmatch(setting):
        return Marks(f"<{found[1]}>", f"</{found[1]}>")
    raise RequestError(f"reasoning_parser must be {AUTO}, {NONE}, {', '.join(FAMILIES)} or tag:NAME, not "
                       f"{setting[:40]!r}")


def begun(given: Marks, prompt: str) -> bool | None:
    """Whether the prompt of a conversation ends in a thought; None where it ends behind one, so that none follows."""
    end = prompt.rstrip()
    return None if end.endswith(given.closes) else end.endswith(given.opens)


def tool_format(setting: str, template: ChatTemplate) -> Format:
    """The format `setting`, or for `auto` the template's. UnsupportedError where that is not known."""
    if setting != AUTO:
        return FORMATS[setting]
    source = template.source
    if not template.reads_tools:
        return JSON  # which drut.model.tool_text tells the model to write
    if any(mark in source for mark in UNKNOWN):
        raise UnsupportedError("this model's template writes calls in a form that is not supported")
    if "[TOOL_CALLS]" in source:
        return MISTRAL_NAMED if "[ARGS]" in source else MISTRAL
    if "<tool_call>" in source:
        return HERMES
    if "<|python_tag|>" in source or '"parameters": ' in source:
        return LLAMA3
    raise UnsupportedError("this model's template has tools, and does not show how their calls are written; "
                           f"--tool-parser can name one of {', '.join(FORMATS)}")
