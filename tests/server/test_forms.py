"""One rule for fields at every depth: honoured, refused by their path, or ignored and named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.server.openai.protocol.chat import ChatRequest
from drut.server.openai.protocol.completions import CompletionRequest
from drut.server.openai.protocol.errors import ApiError
from drut.server.openai.protocol.fields import HINTS, MAX_NAMED, UNSUPPORTED, decode
from drut.server.openai.protocol.forms import FormFields, allowed_at, form_of, unknown_fields
from drut.server.openai.protocol.models import DetokenizeRequest, TokenizeRequest

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
TAG = {"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}
MESSAGES = [{"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "assistant", "tool_calls": [CALL]}]
WHOLE: dict[type, dict[str, Any]] = {
    ChatRequest: {
        "messages": MESSAGES, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}},
        "stream_options": {"include_usage": True},
        "response_format": {"type": "text", "json_schema": {"schema": {}}, "structures": [TAG], "triggers": ["<"]},
        "structured_outputs": {"structural_tag": {"structures": [TAG], "triggers": ["<"]}}},
    CompletionRequest: {
        "prompt": "x", "stream_options": {},
        "response_format": {"type": "text", "json_schema": {"schema": {}}, "structures": [TAG], "triggers": ["<"]},
        "structured_outputs": {"structural_tag": {"structures": [TAG], "triggers": ["<"]}}},
    TokenizeRequest: {"messages": MESSAGES, "tools": [TOOL]},
    DetokenizeRequest: {"tokens": [1]},
}
FORMS = list(WHOLE)


def objects(value: Any, form: FormFields, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of `value` that a form reads, with its path."""
    if isinstance(value, dict) and form.fields:
        yield path, value
        for name, inner in value.items():
            yield from objects(inner, form.fields[name], f"{path}.{name}".lstrip("."))
    elif isinstance(value, list) and form.items is not None:
        for i, inner in enumerate(value):
            yield from objects(inner, form.items, f"{path}[{i}]")


def kinds(form: FormFields, kind: str = "") -> Iterator[str]:
    """Paths of all objects that there can be, without indices."""
    if form.fields:
        yield kind
    for name, inner in form.fields.items():
        yield from kinds(inner, f"{kind}.{name}".lstrip("."))
    if form.items is not None:
        yield from kinds(form.items, f"{kind}[]")


@pytest.mark.parametrize("form", FORMS)
def test_the_examples_have_every_object_of_their_form(form: type) -> None:
    seen = {without_indices(path) for path, _ in objects(WHOLE[form], form_of(form))}
    assert seen == set(kinds(form_of(form)))


def names(form: FormFields) -> Iterator[str]:
    """Of all fields, at every depth."""
    for name, inner in form.fields.items():
        yield name
        yield from names(inner)
    if form.items is not None:
        yield from names(form.items)


KNOWN = {name for form in FORMS for name in names(form_of(form))} | {key.rpartition(".")[2] for key in UNSUPPORTED}
VALUES = st.one_of(st.booleans(), st.integers(-5, 5), st.text(max_size=5), st.lists(st.integers(), max_size=2),
                   st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_an_unknown_field_is_named_at_every_depth(form: Any, data: st.DataObject) -> None:
    name = data.draw(st.from_regex(r"\A[a-z_]{1,20}\Z").filter(lambda n: n not in KNOWN))
    value = data.draw(VALUES)
    for i in range(len(list(objects(WHOLE[form], form_of(form))))):
        body = json.loads(json.dumps(WHOLE[form]))
        path, owner = list(objects(body, form_of(form)))[i]
        owner[name] = value
        raw, expected = json.dumps(body).encode(), f"{path}.{name}".lstrip(".")
        assert decode(raw, form)[1] == (expected,)
        with pytest.raises(ApiError) as caught:
            decode(raw, form, strict=True)
        assert (caught.value.status, caught.value.code, caught.value.param) == (400, "unknown_parameter", expected)
        assert expected in str(caught.value)
        owner[name] = None
        assert decode(json.dumps(body).encode(), form, strict=True)[1] == ()


@pytest.mark.parametrize("kind", [key for key in UNSUPPORTED if "." in key])
def test_what_is_known_and_not_supported_is_refused_inside_too(kind: str) -> None:
    owner, _, name = kind.rpartition(".")
    form = next(form for form in FORMS if owner in set(kinds(form_of(form))))
    body = json.loads(json.dumps(WHOLE[form]))
    path, target = next((p, o) for p, o in objects(body, form_of(form)) if without_indices(p) == owner)
    for value in (*UNSUPPORTED[kind], None):
        target[name] = value
        assert decode(json.dumps(body).encode(), form, strict=True)[1] == ()
    target[name] = {"asks": "for something"}
    with pytest.raises(ApiError) as caught:
        decode(json.dumps(body).encode(), form)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", f"{path}.{name}")
    assert HINTS.get(kind, "") in str(caught.value)


def without_indices(path: str) -> str:
    return "".join(c for c in path if not c.isdigit())


def test_what_a_client_may_name_freely_is_not_looked_into() -> None:
    """Schemas, biases and template variables have names of the client's own."""
    body = {"messages": [{"role": "user", "content": "x"}], "logit_bias": {"5": 1},
            "chat_template_kwargs": {"anything": 1},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"x-any": {"y": 1}}}}],
            "response_format": {"type": "json_schema", "json_schema": {"schema": {"x-any": {"y": 1}}}}}
    assert decode(json.dumps(body).encode(), ChatRequest, strict=True)[1] == ()


def test_names_of_any_length_and_number_fit_a_header() -> None:
    many = {f"field_{i}": 1 for i in range(10_000)} | {"long" * 1000: 1, 'quote",\r\n\u2603': 1}
    _, ignored = decode(json.dumps({"prompt": "x"} | many).encode(), CompletionRequest)
    assert len(", ".join(ignored)) < MAX_NAMED + 100
    assert len(ignored) - 1 + int(ignored[-1].split()[1]) == len(many)
    messages = [{"role": "user", "content": "x", "timestamp": 5}] * 4000
    _, ignored = decode(json.dumps({"messages": messages}).encode(), ChatRequest)
    assert ignored[0] == "messages[0].timestamp"
    assert len(", ".join(ignored)) < MAX_NAMED + 100
    _, ignored = decode(json.dumps({"prompt": "x", 'quote",\r\n\u2603': 1}).encode(), CompletionRequest)
    assert ignored == ("quote?????",)


def test_every_enum_is_found_by_its_path() -> None:
    form = form_of(ChatRequest)
    assert "json_schema" in allowed_at(form, "response_format.type")
    assert "low" in allowed_at(form, "reasoning_effort")
    assert allowed_at(form, "structured_outputs.structural_tag.type") == ("structural_tag",)
    for nothing in ("", "model", "messages[0].role", "no.such[3].path"):
        assert allowed_at(form, nothing) == ()


FAULTS: list[tuple[str, Any, str]] = [
    ("messages[1].role", {"messages": [{"role": "user", "content": "x"}, {"content": "x"}]}, "missing"),
    ("messages[0].content[1].type", {"messages": [{"role": "user", "content": ["a", {"type": 5}]}]}, "str"),
    ("messages[0].tool_calls[0].function.arguments",
     {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]}, "missing"),
    ("messages", {}, "missing"), ("temperature", {"messages": MESSAGES, "temperature": 1e300}, "float"),
    ("tools[0].function.name", {"messages": MESSAGES, "tools": [{"type": "function", "function": {}}]}, "missing"),
    ("response_format.type", {"messages": MESSAGES, "response_format": {"type": "xml"}}, "json_schema, "),
    ("reasoning_effort", {"messages": MESSAGES, "reasoning_effort": "most"}, "high, low"),
    ("reasoning_effort", {"messages": MESSAGES, "reasoning_effort": 5}, "high, low"),
    ("stop[1]", {"messages": MESSAGES, "stop": ["a", 3]}, "str"),
    ("chat_template_kwargs", {"messages": MESSAGES, "chat_template_kwargs": {"a": [1]}}, "array"),
    ("stream_options.include_usage", {"messages": MESSAGES, "stream_options": {"include_usage": "yes"}}, "bool"),
    ("structured_outputs.choice[1]", {"messages": MESSAGES, "structured_outputs": {"choice": ["a", 1]}}, "str"),
]


@pytest.mark.parametrize(("path", "body", "says"), FAULTS)
def test_an_error_gives_the_path_of_its_field(path: str, body: Any, says: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(json.dumps(body).encode(), ChatRequest)
    assert (caught.value.status, caught.value.param) == (400, path)
    assert path in str(caught.value)
    assert says in str(caught.value)


def test_a_number_out_of_range_is_named() -> None:
    for raw in (b'{"prompt": "x", "temperature": 1e999}', b'{"prompt": "x", "temperature": %b}' % (b"9" * 5000)):
        with pytest.raises(ApiError) as caught:
            decode(raw, CompletionRequest)
        assert caught.value.param == "temperature"


def test_a_form_of_plain_values_is_empty() -> None:
    class Plain(msgspec.Struct):
        ids: list[int]

    assert form_of(Plain) == FormFields({"ids": FormFields()})
    assert list(unknown_fields({"ids": [{"a": 1}]}, form_of(Plain))) == []
