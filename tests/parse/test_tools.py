"""Calls in text: what is one, what is not, and that no cut of the text changes either."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.parse import MessageParser, ParsedMessage
from drut.parse.deltas import CallArguments, CallBegins, Content, Delta
from drut.parse.formats import FORMATS, HERMES, JSON, LLAMA3, MISTRAL, Format
from drut.parse.offer import OfferedTools
from drut.parse.tools import CallParser

NAMES = ("look", "add", "get_it")


def parse(form: Format, pieces: list[str], *, whole: bool = True, most: int | None = None,
          only_calls: bool = False) -> tuple[list[Delta], int]:
    numbers = iter(range(100))
    offer = OfferedTools(NAMES, whole, most, lambda: f"id{next(numbers)}")
    parser = MessageParser(None, CallParser(form, offer, only_calls=only_calls))
    deltas = [delta for piece in pieces for delta in parser.push(piece)] + parser.finish()
    return deltas, parser.calls


def message(form: Format, text: str, **how: Any) -> tuple[str, list[tuple[str, str]]]:
    deltas, calls = parse(form, [text], **how)
    made = ParsedMessage(deltas)
    assert len(made.calls) == calls
    return made.content, [(call.name, call.arguments) for call in made.calls]


ONE = [("look", '{"city": "Oslo"}')]
WRITTEN = [
    (HERMES, '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>', "", ONE),
    (HERMES, 'I see.\n\n<tool_call>{"arguments": {"city": "Oslo"}, "name": "look"}</tool_call>', "I see.", ONE),
    (HERMES, '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}', "", ONE),
    (HERMES, '<tool_call>{"name": "look", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>', "", ONE),
    (HERMES, '<tool_call>{"name": "look"}</tool_call>', "", [("look", "{}")]),
    (HERMES, '<tool_call>{"name": "look", "arguments": null}</tool_call> so', "so", [("look", "{}")]),
    (HERMES, '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>\n<tool_call>\n{"name": "add", '
             '"arguments": {"a": [1, {"b": -2.5e3}], "c": "}]\\"\\u00e9"}}\n</tool_call>', "",
     [*ONE, ("add", '{"a": [1, {"b": -2.5e3}], "c": "}]\\"\\u00e9"}')]),
    (HERMES, '<tool_call>[{"name": "look", "arguments": {"city": "Oslo"}}, {"name": "add", "arguments": {}}]'
             "</tool_call>", "", [*ONE, ("add", "{}")]),
    (LLAMA3, '{"name": "look", "parameters": {"city": "Oslo"}}', "", ONE),
    (LLAMA3, '<|python_tag|>{"type": "function", "name": "look", "parameters": {"city": "Oslo"}}', "", ONE),
    (LLAMA3, ' {"name": "look", "parameters": {"city": "Oslo"}}; {"name": "add", "parameters": {}}', "",
     [*ONE, ("add", "{}")]),
    (LLAMA3, 'Well. <|python_tag|>{"name": "look", "parameters": {"city": "Oslo"}}', "Well.", ONE),
    (MISTRAL, '[TOOL_CALLS][{"name": "look", "arguments": {"city": "Oslo"}}]', "", ONE),
    (MISTRAL, '[TOOL_CALLS] [{"name": "look", "arguments": {"city": "Oslo"}, "id": "a"}, {"name": "add", "arguments": '
              "{}}]", "", [*ONE, ("add", "{}")]),
    (MISTRAL, 'x[TOOL_CALLS]look{"city": "Oslo"}[TOOL_CALLS]add{}', "x", [*ONE, ("add", "{}")]),
    (MISTRAL, '[TOOL_CALLS]look[CALL_ID]123abc[ARGS]{"city": "Oslo"}', "", ONE),
    (JSON, '{"name": "look", "arguments": {"city": "Oslo"}}', "", ONE),
    # line ends and tabs as a model writes them in code
    (HERMES, '<tool_call>\n{"name": "look", "arguments": {"a": "def f():\n\treturn 1\x00", "b\n": 1}}', "",
     [("look", '{"a": "def f():\\n\\treturn 1\\u0000", "b\\n": 1}')]),
    (HERMES, '<tool_call>{"name": "look", "arguments": "{\\"a\\": \\"x\ny\\"}"}</tool_call>', "",
     [("look", '{"a": "x\\ny"}')]),
    (MISTRAL, '[TOOL_CALLS]look[ARGS]{\n"a":\n"x\ny"}', "", [("look", '{\n"a":\n"x\\ny"}')]),
    # white space between two texts is that before the call, or else that behind it
    (HERMES, 'Look.\n<tool_call>{"name": "look"}</tool_call>\n\nI tell.', "Look.\nI tell.", [("look", "{}")]),
    (HERMES, 'I look.<tool_call>{"name": "look"}</tool_call> \nThen.\n', "I look. \nThen.", [("look", "{}")]),
    (HERMES, 'a<tool_call>{"name": "look"}</tool_call>b', "ab", [("look", "{}")]),
    (HERMES, '\n<tool_call>{"name": "look"}</tool_call>\n<tool_call>{"name": "add"}</tool_call> b', "b",
     [("look", "{}"), ("add", "{}")]),
    (HERMES, 'a\n\n<tool_call>{"name": "look"}</tool_call>\n<tool_call>{"name": "add"}\n</tool_call>\nb', "a\n\nb",
     [("look", "{}"), ("add", "{}")]),
    (MISTRAL, 'a[TOOL_CALLS][{"name": "look"}] b', "a b", [("look", "{}")]),
    (LLAMA3, 'a <|python_tag|>{"name": "look"} ; {"name": "add"} b', "a b", [("look", "{}"), ("add", "{}")]),
]
NO_CALLS = [
    (HERMES, "Plain text, <tool, <tool_call and {}."),
    (HERMES, ' <tool_call>{"name": "rm", "arguments": {}}</tool_call>\n'),
    (HERMES, '<tool_call>{"name": "look", "arguments": {"city": }}</tool_call> more'),
    (HERMES, '<tool_call>{"name": "look", "arguments": {"city": "Os'),
    (HERMES, '<tool_call>{"name": "look", "arguments": [1]}</tool_call>'),
    (HERMES, '<tool_call>{"name": "look", "arguments": "no"}</tool_call>'),
    (HERMES, '<tool_call>{"name": ' + "9" * 5000 + ', "arguments": {}}</tool_call>'),
    (HERMES, '<tool_call>{"name": "look", "arguments": {"a": ' + "[" * 100),
    (HERMES, "<tool_call>[]</tool_call>"),
    (HERMES, '<tool_call>{"arguments": {"a": 1}}</tool_call>'),
    (HERMES, "<tool_call>"),
    (LLAMA3, '{"a": 1}'),
    (LLAMA3, "<|python_tag|>print(1)"),
    (MISTRAL, "[TOOL_CALLS] and so on, " + "x" * 300),
    (MISTRAL, "[TOOL_CALLS]rm{}"),
    (MISTRAL, '[TOOL_CALLS]look{"a": nul}'),
    (JSON, '{"name": "Ann", "age": 3}'),
    (JSON, '[1, 2]\n{"name": "look", "arguments": {}}'),
    (JSON, "  \n"),
]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("form", "text", "content", "calls"), WRITTEN)
def test_a_call_is_one_at_every_cut(form: Format, text: str, content: str, calls: list[tuple[str, str]],
                                    whole: bool) -> None:
    assert message(form, text, whole=whole) == (content, calls)
    want = parse(form, [text], whole=whole)[0]
    assert [d.id for d in want if isinstance(d, CallBegins)] == [f"id{i}" for i in range(len(calls))]
    for cut in range(len(text) + 1):
        made = ParsedMessage(parse(form, [text[:cut], text[cut:]], whole=whole)[0])
        assert (made.content, [(c.name, c.arguments) for c in made.calls]) == (content, calls)
    assert all(isinstance(json.loads(arguments), dict) for _, arguments in calls)


def test_a_call_that_breaks_off_is_text_and_the_next_one_is_a_call() -> None:
    broken = '<tool_call>{"name": "look", "arguments": {"a": oops}}</tool_call>'
    text = f'{broken}\n<tool_call>{{"name":"look","arguments":{{}}}}</tool_call>'
    for pieces in ([text], list(text)):
        made = ParsedMessage(parse(HERMES, pieces)[0])
        assert (made.content, [(c.name, c.arguments) for c in made.calls]) == (broken, [("look", "{}")])


@pytest.mark.parametrize(("form", "text"), NO_CALLS)
def test_what_is_no_call_is_content_to_the_letter(form: Format, text: str) -> None:
    for cut in range(0, len(text) + 1, max(1, len(text) // 200)):
        deltas, calls = parse(form, [text[:cut], text[cut:]])
        assert calls == 0
        assert "".join(d.text for d in deltas if isinstance(d, Content)) == text


def shape(deltas: list[Delta]) -> list[tuple[str, object]]:
    """In the order of the deltas, pieces joined."""
    made: list[list[Any]] = []
    for delta in deltas:
        kind, text = type(delta).__name__, delta.name if isinstance(delta, CallBegins) else delta.text
        key = getattr(delta, "index", None)
        if made and made[-1][0] == (kind, key) and kind != "CallBegins":
            made[-1][1] += text
        else:
            made.append([(kind, key), text])
    return [tuple(m) for m in made]


FRAGMENTS = ["<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]",
             '{"name": "look", ', '"arguments": {"a": 1}', '"parameters": {}', "}", "]", "[", ",", ";", " ", "\n",
             "look", "add{}", '"x"', '"name": "add"', '{"name": "no"}', "text", "<",
             '{"name": "add", "arguments": {"q": "\\""}}', ": ", "null", '{"name": "add", "arguments": {"q": "\n\t"}}']


@settings(deadline=None, max_examples=400)
@given(st.data(), st.sampled_from(sorted(FORMATS)), st.booleans(), st.booleans(), st.sampled_from([None, 1]))
def test_no_cut_changes_what_a_text_says(data: st.DataObject, form: str, whole: bool, only: bool,
                                         most: int | None) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(FRAGMENTS), max_size=12)))
    how = {"whole": whole, "only_calls": only, "most": most}
    want, calls = parse(FORMATS[form], [text], **how)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    for pieces in ([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)], list(text)):
        got, same = parse(FORMATS[form], pieces, **how)
        assert (shape(got), same) == (shape(want), calls)
    made = ParsedMessage(want)
    assert len(made.calls) == calls
    assert most is None or calls <= most
    assert all(call.name in NAMES for call in made.calls)
    if whole:
        assert all(isinstance(json.loads(call.arguments), dict) for call in made.calls)
    if not calls and not only:
        assert made.content == text


def test_arguments_come_as_they_are_written_where_a_grammar_vouches_for_them() -> None:
    text = '<tool_call>{"name": "look", "arguments": {"city": "Oslo"}}</tool_call>'
    pieces = [d.text for d in parse(HERMES, list(text), whole=False)[0] if isinstance(d, CallArguments)]
    assert pieces == list('{"city": "Oslo"}')
    told = [type(d) for d in parse(HERMES, list(text))[0]]
    assert told == [CallBegins, CallArguments]


def test_a_cut_call_is_no_content_where_only_calls_may_come() -> None:
    for text in ("<tool", "<tool_call>", '<tool_call>{"name": "lo'):
        assert message(HERMES, text, only_calls=True, whole=False) == ("", [])
    begun = '<tool_call>{"name": "look", "arguments": {"ci'
    assert message(HERMES, begun, only_calls=True, whole=False) == ("", [("look", '{"ci')])


def test_calls_beyond_the_most_are_content() -> None:
    text = '<tool_call>{"name": "look"}</tool_call><tool_call>{"name": "add"}</tool_call>'
    assert message(HERMES, text, most=1) == ('<tool_call>{"name": "add"}</tool_call>', [("look", "{}")])


def test_ids_are_like_no_others() -> None:
    for form in FORMATS.values():
        ids = {form.new_id() for _ in range(100)}
        assert len(ids) == 100
    assert {len(MISTRAL.new_id()) for _ in range(9)} == {9}
