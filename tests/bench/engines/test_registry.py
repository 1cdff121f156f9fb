from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

import pytest

from drut.bench.engines.engine import CannotRunError, EngineFiles, Options
from drut.bench.engines.process import free_port, start
from drut.bench.engines.registry import ENGINES, find
from drut.errors import RequestError

NONE = EngineFiles("tiny", "tiny")


def test_engines_are_found_by_their_names() -> None:
    assert all(find(name) is engine and engine.name == name for name, engine in ENGINES.items())


def test_a_name_that_is_none_is_told_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="unknown engine 'drud'; did you mean 'drut'"):
        find("drud")


def test_a_url_is_an_engine() -> None:
    engine = find("http://10.0.0.1:9000/v1")
    got = engine.launch(NONE, Options(2, flags=("llama",)), 1)
    assert (got.argv, got.url, got.model) == ((), "http://10.0.0.1:9000/v1", "llama")
    assert find("url").launch(NONE, Options(2, flags=("https://x",)), 1).model == "tiny"


@pytest.mark.parametrize("flags", [(), ("ftp://x",), ("http://u:p@x",), ("http://x", "m", "more")])
def test_what_is_no_url_cannot_run(flags: tuple[str, ...]) -> None:
    with pytest.raises(CannotRunError):
        find("url").launch(NONE, Options(2, flags=flags), 1)


def test_the_scripted_server_runs(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"model": "scripted"}))
    launch = find("mock").launch(NONE, Options(1, flags=("--script", str(script))), free_port())
    assert launch.model == "scripted"
    with start(launch, tmp_path / "mock.log") as running:
        body = json.dumps({"model": launch.model, "prompt": "a", "max_tokens": 3}).encode()
        request = urllib.request.Request(f"{running.url}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("flags", [(), ("--script",), ("--port", "1"), ("--script", "x", "--host", "0.0.0.0")])
def test_the_scripted_server_needs_its_script_alone(flags: tuple[str, ...]) -> None:
    with pytest.raises(CannotRunError, match="--script FILE"):
        find("mock").launch(NONE, Options(1, flags=flags), 1)


def test_drut_is_started_with_all_it_is_given(tmp_path: Path) -> None:
    files = EngineFiles("tiny", "t", gguf=tmp_path / "tiny-Q8_0.gguf", hf=tmp_path / "hf")
    launch = find("drut").launch(files, Options(2, 1024, 8, ("--no-overlap",)), 4711)
    assert launch.argv == (
        sys.executable, "-m", "drut", "serve", str(tmp_path / "tiny-Q8_0.gguf"), "--served-model-name", "tiny",
        "--host", "127.0.0.1", "--port", "4711", "--threads", "2", "--max-model-len", "1024", "--max-seqs", "8",
        "--no-request-log", "--drain-s", "1", "--no-overlap")
    assert (launch.url, launch.ready, launch.weights) == ("http://127.0.0.1:4711", "/ready", "GGUF Q8_0")
    assert find("drut").launch(EngineFiles("tiny", "t", hf=tmp_path), Options(2), 1).argv[4] == str(tmp_path)
    with pytest.raises(CannotRunError, match="tiny has neither"):
        find("drut").launch(NONE, Options(2), 1)
