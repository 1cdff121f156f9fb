"""Grammars of calls let through what the parser reads, with arguments that fit, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from drut.constrain import Constraint
from drut.errors import RequestError
from drut.parse import MessageParser, ParsedMessage
from drut.parse.calling import MAX_CALLS, Tool, constraint
from drut.parse.formats import FORMATS, Format
from drut.parse.offer import OfferedTools
from drut.parse.tools import CallParser

CITY = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
        "additionalProperties": False}
TOOLS = [Tool("look", CITY, strict=True), Tool("any.thing", {"type": "object"})]
SPECIAL = ("[TOOL_CALLS]", "[ARGS]", "<|python_tag|>")
EOS = 256


class Spelled:
    """A tokenizer of bytes, with marks that are special tokens or none."""

    def __init__(self, special: tuple[str, ...]) -> None:
        self.marks = {mark: 257 + i for i, mark in enumerate(special)}
        self.special_ids = frozenset(self.marks.values())

    def id_of(self, mark: str) -> int | None:
        return self.marks.get(mark)

    def encode(self, text: str) -> list[int]:
        for mark, token in self.marks.items():
            if mark in text:
                before, _, after = text.partition(mark)
                return [*self.encode(before), token, *self.encode(after)]
        return list(text.encode())

    def library(self) -> LLTokenizer:
        made = type("Bytes", (), {"eos_token_id": EOS, "bos_token_id": None, "__call__": lambda _, s: list(
            s if isinstance(s, bytes) else s.encode())})()
        made.tokens = [*(bytes([i]) for i in range(256)), b"<eos>", *(m.encode() for m in self.marks)]
        made.special_token_ids = [EOS, *self.special_ids]
        return LLTokenizer(TokenizerWrapper(made), n_vocab=len(made.tokens), eos_token=[EOS])


@pytest.fixture(params=[(), SPECIAL], ids=["text", "special"])
def spelled(request: pytest.FixtureRequest) -> Spelled:
    return Spelled(request.param)


def accepts(form: Format, spelled: Spelled, text: str, **how: Any) -> bool:
    """Whether the grammar takes `text` as a whole answer."""
    made = constraint(form, TOOLS, how.pop("choice", "required"), spelled, **how)  # type: ignore[arg-type]
    assert made is not None
    matcher = LLMatcher(spelled.library(), LLMatcher.grammar_from_lark(made.source), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = [*spelled.encode(text), EOS]
    return bool(matcher.validate_tokens(ids) == len(ids))


def written(form: Format, *arguments: str) -> str:
    before, after = form.tag("look")
    return form.between.join(f"{before}{text}{after}" for text in arguments)


def read(form: Format, text: str) -> list[Any]:
    parser = MessageParser(None, CallParser(form, OfferedTools(("look", "any.thing"), whole=False), only_calls=True))
    return [json.loads(call.arguments) for call in ParsedMessage([*parser.push(text), *parser.finish()]).calls]


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_what_it_lets_through_is_read(form: Format, spelled: Spelled) -> None:
    one, two = written(form, '{"city":"Oslo"}'), written(form, '{"city":"Oslo"}', '{"city":"Rome"}')
    assert accepts(form, spelled, one)
    assert accepts(form, spelled, two)
    assert not accepts(form, spelled, two, parallel=False)
    assert not accepts(form, spelled, written(form, *['{"city":"Oslo"}'] * (MAX_CALLS + 1)))
    assert read(form, one) == [{"city": "Oslo"}]
    assert read(form, two) == [{"city": "Oslo"}, {"city": "Rome"}]
    for bad in ("", "Hello", "x" + one, one + "x", written(form, '{"city":"Bonn"}'), one.replace("look", "rm")):
        assert not accepts(form, spelled, bad)


@pytest.mark.parametrize("form", FORMATS.values(), ids=list(FORMATS))
def test_where_the_model_chooses_text_is_free_and_calls_are_not(form: Format, spelled: Spelled) -> None:
    one = written(form, '{"city":"Oslo"}')
    for good in (one, "Hello", "", "a [list] {and} <tool"):
        assert accepts(form, spelled, good, choice="auto"), good
    assert accepts(form, spelled, f"I look.\n{one}", choice="auto") or form.bare
    assert not accepts(form, spelled, written(form, '{"city":"Bonn"}'), choice="auto")
    assert accepts(form, spelled, one.replace("look", "any.thing").replace('"city":"Oslo"', '"x": [1]'), choice="auto")


def test_without_a_strict_tool_the_model_is_free(spelled: Spelled) -> None:
    assert constraint(FORMATS["hermes"], TOOLS[1:], "auto", spelled) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("schema", [
    {"type": "object", "propertyNames": {"not": {"minLength": 1}}}, {"type": "object", "not": {"minProperties": 1}}])
def test_a_bad_schema_is_named(schema: dict[str, Any], spelled: Spelled) -> None:
    with pytest.raises(RequestError, match=r"tools\[1\]\.function\.parameters: .*not.*, at #"):
        constraint(FORMATS["hermes"], [TOOLS[0], Tool("f", schema)], "required", spelled)  # type: ignore[arg-type]


def test_arguments_are_an_object_whatever_the_schema_leaves_open(spelled: Spelled) -> None:
    for schema in ({"properties": {"a": {"type": "integer"}}}, {"type": ["object", "null"]}, {}):
        made = constraint(FORMATS["json"], [Tool("f", schema)], "required", spelled)  # type: ignore[arg-type]
        assert made is not None
        assert '"type":"object"' in made.source
    with pytest.raises(RequestError, match=r"tools\[0\]\.function\.parameters: type: arguments must be an object"):
        constraint(FORMATS["json"], [Tool("f", {"type": "integer"})], "required", spelled)  # type: ignore[arg-type]


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
ANSWERS = [
    (Constraint.json_schema(NUMBER), ['{"n": 5}', '{ "n":5}'], ['{"n": "5"}', "5", "", "Hello"]),
    (Constraint.json_object(), ['{"n": 5}', "{}", '{"name": "Ann"}', '{"name": "no", "arguments": {}}'], ["[]", "x"]),
    (Constraint.choice(["red", "green"]), ["red", "green"], ["blue", "redgreen", ""]),
    (Constraint.regex(r"a/b\/[0-9]+"), ["a/b/7"], ["a/b/", "a"]),
    (Constraint.lark('start: x+ // }\nx: "b" | %json {"type": "integer"}'), ["b", "b5b"], ["c", ""]),
    (Constraint.lark('root ::= "yes" | "no"'), ["yes", "no"], ["maybe"]),
]


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize(("answer", "fits", "others"), ANSWERS, ids=range(len(ANSWERS)))
def test_either_calls_or_an_answer_in_the_format(form: Format, answer: Constraint, fits: list[str], others: list[str],
                                                 spelled: Spelled) -> None:
    lenient = [Tool(tool.name, tool.parameters) for tool in TOOLS]
    made = constraint(form, lenient, "auto", spelled, answer=answer)  # type: ignore[arg-type]
    assert made is not None
    one = written(form, '{"city":"Oslo"}')

    def takes(text: str) -> bool:
        matcher = LLMatcher(spelled.library(), LLMatcher.grammar_from_lark(made.source), log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        ids = spelled.encode(text)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    for text in (one, one + (form.between or "\n") + one, *fits):
        assert takes(text), text
        parser = MessageParser(tools=CallParser(form, OfferedTools(("look",)), either=True))
        message = ParsedMessage([delta for letter in text for delta in parser.push(letter)] + parser.finish())
        assert (len(message.calls), message.content) == ((text.count("look"), "") if one in text else (0, text))
    for text in (*others, one + fits[0], f"{fits[0]} {one}", one.replace("look", "nothing")):
        assert not takes(text) or answer == Constraint.json_object(), text


def test_a_strict_tool_beside_a_format_needs_a_mark(spelled: Spelled) -> None:
    for form in FORMATS.values():
        strict = [Tool("f", {}, place=2), Tool("look", CITY, strict=True, place=5)]
        if form.before.startswith(form.opens) and form.opens:
            made = constraint(form, strict, "auto", spelled, answer=Constraint.json_object())  # type: ignore[arg-type]
            assert made is not None
            assert '"Oslo"' in made.source
        else:
            with pytest.raises(RequestError, match=r"tools\[5\]\.function\.strict"):
                constraint(form, strict, "auto", spelled, answer=Constraint.json_object())  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_what_is_cut_behind_a_call_is_no_answer_in_a_format(form: Format) -> None:
    two = written(form, '{"city":"Oslo"}', '{"city":"Rome"}')
    for end in range(len(two)):
        parser = MessageParser(tools=CallParser(form, OfferedTools(("look",)), either=True))
        message = ParsedMessage([*parser.push(two[:end]), *parser.finish()])
        assert message.content == ("" if message.calls else two[:end])
        assert len(message.calls) <= 2


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.name)
def test_a_mark_inside_an_answer_in_a_format_is_text(form: Format) -> None:
    one = written(form, '{"city":"Oslo"}')
    for text in (json.dumps({"a": one}), f"x {one}", f"[1] {one}", '{"a": 5} ' + one):
        for step in (1, 3, len(text)):
            parser = MessageParser(tools=CallParser(form, OfferedTools(("look",)), either=True))
            pieces = [text[i : i + step] for i in range(0, len(text), step)]
            message = ParsedMessage([delta for piece in pieces for delta in parser.push(piece)] + parser.finish())
            assert (message.calls, message.content) == ([], text)
