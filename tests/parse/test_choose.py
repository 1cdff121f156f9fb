"""Marks and formats are found in templates."""

from __future__ import annotations

import pytest

from drut.errors import RequestError, UnsupportedError
from drut.model.template.template import ChatTemplate
from drut.parse.choose import FAMILIES, Marks, begun, marks, tool_format

THINK = FAMILIES["think"]


@pytest.mark.parametrize(("setting", "source", "expected"), [
    ("auto", "{{ m.split('</think>') }}", THINK), ("auto", "{{ messages }}", None),
    ("auto", "x[/THINK]", FAMILIES["mistral"]), ("none", "</think>", None), ("think", "", THINK),
    ("tag:plan", "</think>", Marks("<plan>", "</plan>")),
])
def test_marks(setting: str, source: str, expected: Marks | None) -> None:
    assert marks(setting, ChatTemplate(source)) == expected


def test_marks_without_a_template_or_of_no_family() -> None:
    assert marks("auto", None) is None
    for bad in ("tag:", "tag:a b", "deepthought"):
        with pytest.raises(RequestError, match="reasoning_parser"):
            marks(bad, None)


@pytest.mark.parametrize(("prompt", "expected"), [("a<think>\n", True), ("a", False),
                                                  ("<think>\n\n</think>\n\n", None)])
def test_where_a_thought_has_begun(prompt: str, expected: bool | None) -> None:
    assert begun(THINK, prompt) is expected


TOOLS = "{% if tools %}%s{% endif %}"


@pytest.mark.parametrize(("source", "name"), [
    ("{{ tools }}<tool_call>", "hermes"), ("{{ tools }}[TOOL_CALLS]", "mistral"),
    ("{{ tools }}[TOOL_CALLS][ARGS]", "mistral-named"), ('{{ tools }}"parameters": ', "llama3"),
    ("{{ tools }}<|python_tag|>", "llama3"), ("{{ messages }}", "json"), ("<tool_call>", "json"),
])
def test_formats(source: str, name: str) -> None:
    assert tool_format("auto", ChatTemplate(source)).name == name
    assert tool_format("llama3", ChatTemplate(source)).name == "llama3"


@pytest.mark.parametrize("source", ["{{ tools }}<tool_call><function=", "{{ tools }}"])
def test_a_form_that_is_not_known(source: str) -> None:
    with pytest.raises(UnsupportedError, match="calls"):
        tool_format("auto", ChatTemplate(source))
    assert tool_format("hermes", ChatTemplate(source)).name == "hermes"
