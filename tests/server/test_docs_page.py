"""`/docs`: every route and field with its meaning, in one page without script, at any width and theme."""

from __future__ import annotations

import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from drut.server.openai.docs.notes import NOTES
from drut.server.openai.docs.schema import bounds_of, default_of, type_of
from tests.server.rig import Running, serving

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Tags that do not nest, ids, targets of links, and text of code."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")
            if name in ("src", "srcset", "data", "style") or name.startswith("on"):
                self.loads.append(f"{tag} {name}")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(running: Running) -> tuple[str, Checker]:
    reply = running.get("/docs")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    html = reply.raw.decode()
    checker = Checker()
    checker.feed(html)
    assert not checker.open
    return html, checker


def test_the_page_stands_alone_and_its_links_lead_somewhere(server: Running) -> None:
    html, checker = checked(server)
    assert not checker.loads
    assert "<script" not in html
    assert "url(" not in html
    assert len(set(checker.ids)) == len(checker.ids)
    assert {link.removeprefix("#") for link in checker.links if link.startswith("#")} <= set(checker.ids)
    assert {link for link in checker.links if not link.startswith("#")} == {"/openapi.json"}


def test_every_route_and_field_of_the_document_is_there(server: Running) -> None:
    _, checker = checked(server)
    document, text = server.get("/openapi.json").json, set(map(str.strip, checker.text))
    assert set(document["paths"]) <= text
    for name, schema in document["components"]["schemas"].items():
        assert set(schema.get("properties", {})) <= text, name


def test_every_field_of_a_request_has_a_meaning_and_every_note_a_field(server: Running) -> None:
    schemas = server.get("/openapi.json").json["components"]["schemas"]
    for name in ("ChatRequest", "CompletionRequest", "TokenizeRequest", "DetokenizeRequest", "ChatMessage"):
        fields = schemas[name]["properties"]
        assert [f for f, value in fields.items() if not value.get("description")] == []
    known = {f for schema in schemas.values() for f in schema.get("properties", {})}
    known |= {f"{name}.{f}" for name, schema in schemas.items() for f in schema.get("properties", {})}
    assert set(NOTES) <= known


def test_defaults_are_those_of_the_server(model_path: Path) -> None:
    with serving(model_path, temperature=0.25, special_tokens_in_messages="parse", api_key="a-key-123456") as running:
        running.key = "a-key-123456"
        fields = running.get("/openapi.json").json["components"]["schemas"]["ChatRequest"]["properties"]
        assert fields["temperature"]["default"] == 0.25
        assert fields["special_tokens_in_messages"]["default"] == "parse"
        assert fields["seed"]["x-default"] == "random"
        assert "$DRUT_API_KEY" in checked(running)[0]


def test_every_example_is_answered(server: Running) -> None:
    _, checker = checked(server)
    commands = [text for text in checker.text if text.startswith("curl ")]
    assert len(commands) == 10
    for command in commands:
        pasted = f"{command.replace('NAME', 'tiny')} -s -o /dev/null -w '%{{http_code}}'"
        done = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, check=True)
        assert done.stdout == "200", command


@pytest.mark.parametrize(("schema", "texts"), [
    ({"anyOf": [{"type": "number", "minimum": 0, "maximum": 2.5}, {"type": "null"}], "default": 1.0},
     ("number", "0 to 2.5", "1")),
    ({"type": "string", "minLength": 1, "maxLength": 9}, ("string", "at most 9 characters", "")),
    ({"type": "integer", "minimum": -1, "maximum": (1 << 63) - 1, "default": -1}, ("integer", "at least -1", "-1")),
    ({"type": "number", "exclusiveMinimum": 0}, ("number", "above 0", "")),
    ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
     ("string or list of strings", "", "")),
    ({"enum": ["a", "b"], "default": "a"}, ('"a" | "b"', "", '"a"')),
    ({"type": "array", "items": {"$ref": "#/x/Tool"}, "minItems": 1, "x-default": "none"},
     ("list of Tool", "at least 1 item", "none"))])
def test_types_bounds_and_defaults_in_words(schema: dict[str, object], texts: tuple[str, str, str]) -> None:
    assert (type_of(schema), bounds_of(schema), default_of(schema)) == texts
