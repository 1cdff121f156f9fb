"""Chooses a model's reasoning marks and format of tool calls, by its chat template or by a setting."""

from __future__ import annotations

import re
from typing import NamedTuple

from drut.errors import RequestError, UnsupportedError
from drut.model.template.template import ChatTemplate
from drut.model.template.templates import ChatTemplates
from drut.parse.formats import FORMATS, HERMES, JSON, LLAMA3, MISTRAL, MISTRAL_NAMED, Format

AUTO, NONE = "auto", "none"
TAG = re.compile(r"tag:([A-Za-z][A-Za-z0-9_:-]{0,40})")
UNKNOWN = ("<function=", "<invoke", "tool▁call", "<tool_code>", "<|tool_call", "<|channel|>", "<arg_key>")


class Marks(NamedTuple):
    """The marks around reasoning."""

    opens: str
    closes: str


FAMILIES = {
    "think": Marks("<think>", "</think>"),
    "mistral": Marks("[THINK]", "[/THINK]"),
    "seed": Marks("<seed:think>", "</seed:think>"),
}


def marks(setting: str, templates: ChatTemplate | ChatTemplates | None) -> Marks | None:
    """Returns the marks of the family `setting`, or for `auto` the marks whose end is in a template. Raises
    RequestError for an unknown family."""
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
    """Whether the prompt of a conversation ends in reasoning; None if it ends behind it, so that none follows."""
    end = prompt.rstrip()
    return None if end.endswith(given.closes) else end.endswith(given.opens)


def tool_format(setting: str, template: ChatTemplate) -> Format:
    """Returns the format `setting`, or for `auto` the template's. Raises UnsupportedError if that is unknown."""
    if setting != AUTO:
        return FORMATS[setting]
    source = template.source
    if not template.reads_tools:
        return JSON  # the format that drut.model.template.tool_text describes to the model
    if any(mark in source for mark in UNKNOWN):
        raise UnsupportedError("this model's template writes calls in a form that is not supported")
    if "[TOOL_CALLS]" in source:
        return MISTRAL_NAMED if "[ARGS]" in source else MISTRAL
    if "<tool_call>" in source:
        return HERMES
    if "<|python_tag|>" in source or '"parameters": ' in source:
        return LLAMA3
    raise UnsupportedError("this model's template has tools, but does not show the format of their calls; "
                           f"--tool-parser can name one of {', '.join(FORMATS)}")
