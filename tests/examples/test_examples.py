"""Every program in examples/ runs as a user runs it, and prints what its docstring says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drut.model.store import resolve
from tests.server.rig import serving

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL = "smollm2-135m-instruct"

pytestmark = [pytest.mark.model, pytest.mark.slow]


def run(name: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_quickstart() -> None:
    assert "Paris" in run("quickstart.py")


def test_chat() -> None:
    out = run("chat.py")
    assert "Delhi" in out
    assert "(0 of " in out
    assert " prompt tokens cached" in out


def test_stream() -> None:
    assert " tokens, seed " in run("stream.py").splitlines()[-1]


def test_async_engine() -> None:
    assert [text.partition(" ")[0] for text in run("async_engine.py").split("\n\n")[:1]] == ["Once"]


def test_structured() -> None:
    assert {*json.loads(run("structured.py"))} == {"name", "population"}


def test_openai_client() -> None:
    pytest.importorskip("openai")
    with serving(resolve(MODEL), engine={"kv_cache_gb": 0.2}) as server:
        assert len(run("openai_client.py", f"{server.url}/v1").split()) > 3


def test_batch(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("2 + 2 =\nThe capital of France is\n")
    rows = [json.loads(row) for row in run("batch.py", MODEL, str(lines)).splitlines()]
    assert [row["prompt"] for row in rows] == lines.read_text().splitlines()
    assert "Paris" in rows[1]["answer"]


def test_each_example_is_short_and_has_a_test() -> None:
    programs = {path.stem: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert all(f"test_{name}" in globals() for name in programs)
    assert max(len(text.splitlines()) for text in programs.values()) <= 40
