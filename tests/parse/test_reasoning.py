"""Thoughts in text: where they end, and that no cut of the text changes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.constrain import ReasoningSpec
from drut.parse import ParsedMessage
from drut.parse.formats import HERMES
from drut.parse.offer import OfferedTools
from drut.parse.reading import Reading


def message(pieces: list[str], *, begun: bool | None = False, tools: bool = False,
            bound: bool = False) -> ParsedMessage:
    form, offer = (HERMES, OfferedTools(("look",), new_id=lambda: "id")) if tools else (None, None)
    parser = Reading(ReasoningSpec("<think>", "</think>", begun), form, offer, bound=bound).parser()
    return ParsedMessage([delta for piece in pieces for delta in parser.push(piece)] + parser.finish())


def said(made: ParsedMessage) -> tuple[str, str, list[tuple[str, str]]]:
    return made.reasoning, made.content, [(c.name, c.arguments) for c in made.calls]


@pytest.mark.parametrize(("text", "begun", "reasoning", "content"), [
    ("<think>\nEasy.\n</think>\n\nYes.\n", False, "Easy.", "Yes.\n"),
    (" \n<think>a</think>b", False, "a", "b"),
    ("Easy.\n\n so\n</think>\n\nYes.", True, "Easy.\n\n so", "Yes."),
    ("\n\n</think>\n\nYes.", True, "", "Yes."),
    ("Yes <think>no</think>", False, "", "Yes <think>no</think>"),
    ("\n Yes", False, "", "\n Yes"),
    ("<thin", False, "", "<thin"),
    ("<think>half</thi", False, "half</thi", ""),
    ("half\n", True, "half", ""),
    ("", False, "", ""),
    # behind reasoning no mark is shown, and text between further marks is reasoning
    ("a</think>b</think>c<think>d", True, "a\nd", "bc"),
    ("a</think>\n\n<think>\n</think>\n\n<think>\n</think>\n\nYes.", True, "a", "Yes."),
    ("</think></think></think>", True, "", ""),
    ("a\n</think>\n\nb\n</think>\n\nc", True, "a", "b\n\n\nc"),
    ("<think>a</think>b <think>c\n\n</think>\nd<think>e", False, "a\nc\ne", "b d"),
    ("Yes</think>\n <thi", None, "", "Yes\n <thi"),
    ("<think>c</think>d", None, "c", "d"),
    ("<think>Yes", None, "Yes", ""),
    ("Yes <think>no</think></think>", False, "", "Yes <think>no</think></think>"),
])
def test_a_thought_ends_where_it_ends_at_every_cut(text: str, begun: bool | None, reasoning: str,
                                                   content: str) -> None:
    for cut in range(len(text) + 1):
        assert said(message([text[:cut], text[cut:]], begun=begun)) == (reasoning, content, [])
    assert said(message(list(text), begun=begun)) == (reasoning, content, [])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "/think>", "\n", " ", "a", "<tool_call>", "</tool_call>",
                                 '{"name": "look", "arguments": {}}', '{"name": "look", "arguments": {"a": "', '"}}']),
                max_size=10), st.sampled_from([True, False, None]), st.booleans(), st.booleans())
def test_no_cut_changes_what_a_text_says(words: list[str], begun: bool | None, tools: bool, bound: bool) -> None:
    text = "".join(words)
    how: dict[str, Any] = {"begun": begun, "tools": tools, "bound": bound}
    want = said(message([text], **how))
    assert said(message(words, **how)) == want
    assert said(message(list(text), **how)) == want


def test_marks_in_a_string_of_a_call_are_the_calls() -> None:
    call = '<tool_call>{"name": "look", "arguments": {"a": "<think> is closed by </think>"}}</tool_call>'
    for text in (f"a</think>{call}", f"a</think>{call}</think>"):
        for pieces in ([text], list(text)):
            made = message(pieces, begun=True, tools=True)
            assert said(made) == ("a", "", [("look", '{"a": "<think> is closed by </think>"}')])
    broken = message(['a</think>x <tool_call>{"name": <think>b</think>}'], begun=True, tools=True)
    assert said(broken) == ("a\nb", 'x <tool_call>{"name": }', [])


def test_where_a_grammar_binds_the_answer_marks_are_its_own() -> None:
    text = 'a</think>{"x": "<think>", "y": "</think>"}'
    assert said(message(list(text), begun=True, bound=True)) == ("a", text.partition("</think>")[2], [])


def test_calls_count_behind_the_thought_alone() -> None:
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    made = message([f"<think>{call}</think>\n\n{call}"], tools=True)
    assert said(made) == (call, "", [("look", "{}")])
