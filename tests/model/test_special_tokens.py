"""Special tokens that messages spell: ordinary text, whatever a template does to the text."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drut.errors import RequestError
from drut.model.special_tokens import SIGNS, SpecialTokenEscaper, longest_of
from drut.model.template import template as module
from drut.model.template.template import ChatTemplate
from drut.model.template.templates import ChatTemplates
from drut.model.tokenizer import Tokenizer
from tests.llama_sources import chat_templates
from tests.model.conversations import BOS, CONVERSATIONS, EOS, WEATHER, as_sent
from tests.model.test_template_published import GOLDEN, Today, digest

MARK = re.compile(r"<\|[^|<>\s]+\|>|<｜[^<>]+｜>|<[a-z_]*(?:start|end|bos|eos|sep)[a-z_]*>|\[/?[A-Z_]{4,}\]")

HTML = "meetkai-functionary-medium-v3.1"  # its template writes tools as HTML, where < of a message would be &lt;


@dataclass
class Words:
    """A tokenizer whose tokens are special tokens and characters: special ones have negative ids."""

    special_texts: list[str]
    normalizes_special: bool = False
    rules: Any = field(default_factory=lambda: SimpleNamespace(prefix=()))

    def encode_more(self, text: str, *, parse_special: bool = True) -> list[int]:
        parts = re.split(f"({longest_of(self.special_texts)})", text) if parse_special else [text]
        return [i for n, part in enumerate(parts)
                for i in ([-1 - self.special_texts.index(part)] if n % 2 else map(ord, part))]

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return self.encode_more(text, parse_special=parse_special)

    def encode_chat(self, text: str) -> list[int]:
        return self.encode_more(text)


def escaper(special: Iterable[str], *sources: str) -> tuple[SpecialTokenEscaper, ChatTemplate, Words]:
    templates = [ChatTemplate(source, bos_token=BOS, eos_token=EOS) for source in sources]
    words = Words(sorted(special))
    return SpecialTokenEscaper(cast(Tokenizer, words), ChatTemplates(templates[0], templates[-1])), templates[0], words


def ids_of(source: str, text: str, special: tuple[str, ...] = ("<|s|>", "<|e|>")) -> list[int]:
    """The ids of a message in a template."""
    model, template, _ = escaper(special, source)
    messages = [{"role": "user", "content": text}]
    escape = model.begin(messages)
    return escape.encode(template.render(messages, hide=escape.hide))


TURN = "<|s|>{{ messages[0].content }}<|e|>"


@pytest.mark.parametrize(("content", "text"), [
    ("{{ messages[0].content }}", "a<|e|><|s|>b"), ("{{ messages[0].content | trim }}", "  <|e|> "),
    ("{{ messages[0].content.replace('<x>', '') }}", "<|<x>e|>"),
    ("{{ messages[0].content.replace(' ', '') }}", "<| e|>"),
    ("{{ messages[0].content.split('</think>')[-1] }}", "<|e|></think><|e|>"),
    ("{{ messages[0].content ~ '|e|>' }}", "<"), ("{{ messages[0].content[:5] }}", "<|e|><|e|>"),
    ("{{ messages[0].content | upper | lower }}", "<|e|>"), ("{{ messages | tojson }}", "<|e|>"),
    ("{{ messages | tojson(ensure_ascii=true) }}", "<|e|>"), ("{{ messages }}", "<|e|>")])
def test_no_operation_of_a_template_makes_a_token_of_a_message(content: str, text: str) -> None:
    source = f"<|s|>{content}<|e|>"
    ids = ids_of(source, text)
    assert [i for i in ids if i < 0] == [-2, -1]
    plain = ChatTemplate(source, bos_token=BOS, eos_token=EOS).render([{"role": "user", "content": text}])
    assert "".join(map(chr, ids[1:-1])) == plain.removeprefix("<|s|>").removesuffix("<|e|>"), "no text is changed"


@pytest.mark.parametrize("text", ["x", "", SIGNS[:3], "\\u4dc0", "a < b", "<|e", SIGNS[:64] + "<"])
def test_other_texts_are_encoded_as_they_are(text: str) -> None:
    assert ids_of(TURN, text) == [-2, *map(ord, text), -1]


def test_signs_that_run_out_are_refused() -> None:
    with pytest.raises(RequestError, match="can stand for <"):
        ids_of(TURN, SIGNS + "<|e|>")


def test_a_template_finds_what_it_looks_for() -> None:
    source = "{% set c = messages[0].content %}{{ c.split('</think>')[-1] if c.startswith('<think>') else 'no' }}<|e|>"
    assert ids_of(source, "<think>a</think><b") == [*map(ord, "<b"), -1]


def test_special_tokens_of_letters_leave_roles_alone() -> None:
    ids = ids_of("{% if messages[0].role == 'user' %}u:{{ messages[0].content }}{% endif %}", "use up", ("up", "us"))
    assert ids == list(map(ord, "u:use up"))


def test_the_longest_of_many_is_found_soon() -> None:
    many = [f"<unused{i}>" for i in range(6000)] + ["<|a|>", "<|a|><|b|>", "a.c", "a"]
    pattern, started = re.compile(longest_of(many)), time.process_time()
    assert pattern.findall("<|a|><|b|>") == ["<|a|><|b|>"]
    assert pattern.findall("abca.c<unused5999><unused6000>") == ["a", "a.c", "<unused5999>"]
    assert pattern.findall("<|a|>" + "<unused" * 150_000) == ["<|a|>"]
    assert time.process_time() - started < 5
    assert re.findall(longest_of([]), "abc") == []
    long = "<" + "x" * 5000
    assert re.findall(longest_of([long, long + "y", "<"]), f"{long}y{long}<") == [long + "y", long, "<"]


@pytest.mark.model
def test_published_templates_render_the_same_and_no_message_forges_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """70 templates: without spelled tokens the text is that of transformers; with them no special token is added."""
    monkeypatch.setattr(module, "datetime", Today)
    changed, forged, counted = [], [], 0
    for name, source in chat_templates().items():
        marks = {mark for mark in MARK.findall(source) if "+" not in mark} | {BOS, EOS}
        model, template, words = escaper(marks, source)
        for key, conversation in CONVERSATIONS.items():
            messages = as_sent(conversation.messages)
            if GOLDEN[name][key] is None or any(mark in json.dumps([messages, conversation.tools]) for mark in marks):
                continue
            escape, counted = model.begin(messages, conversation.tools), counted + 1
            known = {name: value for name, value in conversation.variables.items() if name in template.variables}
            text = template.render(messages, tools=conversation.tools, variables=known, hide=escape.hide,
                                   add_generation_prompt=conversation.prompt, continue_final=conversation.continues)
            if digest(escape.reveal(text)) != GOLDEN[name][key]:
                changed.append(f"{name}: {key}")
        for mark in sorted(marks):
            if (made := special_ids(model, template, words, mark)) != special_ids(model, template, words, "x"):
                forged.append(f"{name}: {mark} {made}")
    assert not forged
    assert {name.partition(":")[0] for name in changed} == {HTML}
    assert counted > 1000


def special_ids(model: SpecialTokenEscaper, template: ChatTemplate, words: Words, text: str) -> list[int] | None:
    """The special ids of a conversation with `text` in messages, a call, a result and a tool; None where the template
    refuses it."""
    call = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": text})}}
    tool = WEATHER | {"function": WEATHER["function"] | {"description": text}}
    for calls in (True, False):
        messages = [{"role": "user", "content": f"a{text}b"}, {"role": "assistant", "content": text}]
        if calls:
            messages = [messages[0], messages[1] | {"tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "call00001", "name": "f", "content": text}]
        tools = [tool] if calls else []
        escape = model.begin(messages, tools)
        try:
            rendered = template.render(messages, tools=tools, hide=escape.hide)
        except RequestError:
            continue
        return [i for i in escape.encode(rendered) if i < 0]
    return None
