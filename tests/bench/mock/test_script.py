"""Scripts: read strictly, and explained in full."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drut.bench.mock import load_script, parse_script
from drut.bench.mock.fields import fields_text
from drut.bench.mock.script import Constant, Fault, Script, ScriptStart, Stall, Stream, Time
from drut.errors import RequestError

DOCS = (Path(__file__).parents[3] / "docs" / "bench.md").read_text()


@pytest.mark.parametrize(("data", "names"), [
    ({"slot": 3}, ["slot"]),
    ({"slots": 0}, ["slots"]),
    ({"slots": "8"}, ["slots"]),
    ({"ttft": {"kind": "constant", "ms": -1}}, ["ttft.ms"]),
    ({"ttft": {"kind": "constant", "ms": float("nan")}}, ["ttft", "ms"]),
    ({"ttft": {"kind": "constant", "ms": float("inf")}}, ["ttft.ms"]),
    ({"ttft": {"kind": "normal", "ms": 1}}, ["ttft", "normal"]),
    ({"ttft": {"ms": 1}}, ["ttft", "kind"]),
    ({"itl": {"kind": "uniform", "low_ms": 2, "high_ms": 1}}, ["itl", "low_ms"]),
    ({"itl": {"kind": "cycle", "ms": []}}, ["itl.ms"]),
    ({"itl": {"kind": "cycle", "ms": [1.0, float("nan")]}}, ["itl", "ms"]),
    ({"stream": {"bundle": 0}}, ["stream.bundle"]),
    ({"stream": {"bundel": 2}}, ["stream", "bundel"]),
    ({"faults": [{"kind": "cut"}]}, ["faults[0]", "every"]),
    ({"faults": [{"kind": "cut", "every": 2, "probability": 0.5}]}, ["faults[0]", "every"]),
    ({"faults": [{"kind": "status", "every": 2, "after_tokens": 1}]}, ["faults[0]", "status"]),
    ({"stalls": [{"ms": 3}]}, ["stalls[0]", "after_tokens"]),
    ([], ["object"]),
])
def test_what_is_wrong_is_named(data: Any, names: list[str]) -> None:
    with pytest.raises(RequestError) as error:
        parse_script(data, "my.toml")
    assert str(error.value).startswith("my.toml: ")
    assert all(name in str(error.value) for name in names)


def test_files_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('slots = 2\nttft = { kind = "constant", ms = 5 }\n')
    (tmp_path / "a.json").write_text('{"slots": 2, "ttft": {"kind": "constant", "ms": 5}}')
    assert load_script(tmp_path / "a.toml") == load_script(tmp_path / "a.json") == Script(
        slots=2, ttft=Constant(5.0))


@pytest.mark.parametrize(("name", "content"), [("a.toml", b"slots = "), ("a.json", b"{"), ("b.json", b"\xff\xfe")])
def test_a_file_that_is_no_script_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=re.escape(name)):
        load_script(tmp_path / name)
    with pytest.raises(RequestError, match=r"missing\.json"):
        load_script(tmp_path / "missing.json")


def test_every_field_is_explained() -> None:
    text = fields_text()
    for struct in (Script, ScriptStart, Stall, Fault, Stream):
        for field in msgspec.structs.fields(struct):
            assert re.search(rf"^  {field.name}( = .*)?: \w", text, re.MULTILINE), field.name
    for kind in Time.__args__:
        assert f"{kind.__struct_config__.tag} ({', '.join(kind.__struct_fields__)}): " in text
    assert 'usage = "asked": in streams: asked: if' in text
    assert "itl = 0 ms: time between two tokens" in text


def test_the_example_in_the_docs_is_a_script(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", DOCS, re.DOTALL)
    assert example
    (tmp_path / "example.toml").write_text(example[1])
    assert load_script(tmp_path / "example.toml").slots == 8
