"""Thoughts in text: where they end, and that no cut of the text changes it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.parse import Message, MessageParser
from drut.parse.calls import Offer
from drut.parse.formats import HERMES
from drut.parse.reasoning import ReasoningParser
from drut.parse.tools import CallParser


def message(pieces: list[str], *, begun: bool = False, tools: bool = False) -> Message:
    calls = CallParser(HERMES, Offer(("look",), new_id=lambda: "id")) if tools else None
    parser = MessageParser(ReasoningParser("<think>", "</think>", begun=begun), calls)
    return Message([delta for piece in pieces for delta in parser.push(piece)] + parser.finish())


def said(made: Message) -> tuple[str, str, list[tuple[str, str]]]:
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
    ("a</think>b</think>c<think>d", True, "a", "b</think>c<think>d"),
    ("", False, "", ""),
])
def test_a_thought_ends_where_it_ends_at_every_cut(text: str, begun: bool, reasoning: str, content: str) -> None:
    for cut in range(len(text) + 1):
        assert said(message([text[:cut], text[cut:]], begun=begun)) == (reasoning, content, [])
    assert said(message(list(text), begun=begun)) == (reasoning, content, [])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "/think>", "\n", " ", "a", "<tool_call>", "</tool_call>",
                                 '{"name": "look", "arguments": {}}']), max_size=10), st.booleans(), st.booleans())
def test_no_cut_changes_what_a_text_says(words: list[str], begun: bool, tools: bool) -> None:
    text = "".join(words)
    want = said(message([text], begun=begun, tools=tools))
    assert said(message(words, begun=begun, tools=tools)) == want
    assert said(message(list(text), begun=begun, tools=tools)) == want


def test_calls_count_behind_the_thought_alone() -> None:
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    made = message([f"<think>{call}</think>\n\n{call}"], tools=True)
    assert said(made) == (call, "", [("look", "{}")])
