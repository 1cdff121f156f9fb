"""`drut eval`: metrics of a tiny model against itself and against another, limits, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drut.cli.main import main

SHORT = ["--windows", "6", "--tokens", "12", "--backend", "numpy"]


@pytest.mark.slow
def test_a_float_model_beside_itself(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", tiny, *SHORT, "--kv-dtype", "fp32", "--max-divergence", "1e-9", "--min-agreement", "1",
                 "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] is True
    assert told["likelihood"]["divergence"]["value"] == 0.0
    assert told["likelihood"]["perplexity"] == told["likelihood"]["reference_perplexity"]
    assert [v["figure"] for v in told["verdicts"]] == ["divergence", "agreement"]


@pytest.mark.slow
def test_a_limit_that_is_not_held(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rough = str(tmp_path / "rough.gguf")
    assert main(["convert", tiny, rough, "--encoding", "Q4_0"]) == 0
    assert main(["eval", rough, *SHORT, "--reference", tiny, "--max-divergence", "1e-9"]) == 1
    out = capsys.readouterr().out
    assert "NOT HELD: divergence" in out
    assert "6 windows of 12 tokens" in out
    assert main(["eval", rough, *SHORT, "--reference", "none", "--max-divergence", "1e-9"]) == 0, "nothing was measured"


def test_a_task(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", tiny, "--windows", "0", "--task", "gsm8k", "--questions", "0", "--backend", "numpy"]) == 2
    assert "gsm8k has 1 to 58 questions here, not 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("more", "why"), [
    (["--tokens", "1"], "--tokens 2 or more"), (["--text", "/nowhere"], "/nowhere: No such file"),
    (["--windows", "99999999"], "the text has"), (["--reference", "nothing"], "no model 'nothing'")])
def test_errors_are_one_line(tiny: str, capsys: pytest.CaptureFixture[str], more: list[str], why: str) -> None:
    assert main(["eval", tiny, "--backend", "numpy", *more]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("drut: error:")]
    assert len(said) == 1
    assert why in said[0]
