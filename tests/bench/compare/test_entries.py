from __future__ import annotations

from pathlib import Path

import pytest

from drut.bench.compare.entries import CompareEntry, parse_entries
from drut.bench.engines.engine import EngineFiles
from drut.errors import RequestError


def test_names_alone_may_share_a_text() -> None:
    assert [(e.name, e.engine) for e in parse_entries(["drut,vllm", "llama-server"])] == [
        ("drut", "drut"), ("vllm", "vllm"), ("llama-server", "llama-server")]


def test_one_engine_may_stand_several_times_with_flags_and_files_of_its_own() -> None:
    first, second = parse_entries(["drut", "plain=drut gguf=~/m.gguf port=8001 --max-seqs 4 --x='a b' key=value"])
    assert first == CompareEntry("drut", "drut")
    assert second == CompareEntry("plain", "drut", ("--max-seqs", "4", "--x=a b", "key=value"),
                                  {"gguf": Path("~/m.gguf").expanduser()}, 8001)
    files = EngineFiles("m", "t", gguf=Path("a.gguf"), hf=Path("b"))
    assert second.of(files) == EngineFiles("m", "t", gguf=Path("~/m.gguf").expanduser(), hf=Path("b"))
    assert first.of(files) == files


def test_a_server_that_runs_already_needs_a_label() -> None:
    (found,) = parse_entries(["there=http://h:8000/v1?a=b model"])
    assert (found.name, found.engine, found.flags) == ("there", "http://h:8000/v1?a=b", ("model",))
    with pytest.raises(RequestError, match="expected ENGINE"):
        parse_entries(["http://h:8000"])


@pytest.mark.parametrize(("texts", "words"), [
    ([], "no engine"), ([""], "expected ENGINE"), (["a=b=c"], "expected ENGINE"),
    (["drut", "drut"], "two contestants"), (["a=drut port=x"], "port must be"),
    (["drut,drut"], "two contestants"), (["x/y=drut"], "expected ENGINE"), (["-x"], "expected ENGINE"),
    (["a=drut 'open"], "No closing quotation"), (["a=drut port=0"], "port must be"),
])
def test_what_makes_no_sense_is_named(texts: list[str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        parse_entries(texts)
