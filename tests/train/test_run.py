"""`drut train-drafter` as a whole, on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed (extra train); .ci/run runs these tests")

from drut import LLM, SamplingParams
from drut.cli.main import main
from drut.engine.step.speculation import DraftCounts
from drut.train.evaluation import report_of

ENGINE = ["--threads", "1", "--kv-cache-gb", "0.01"]


def command(tiny: Path, prompts: Path, out: Path, *more: str) -> list[str]:
    return ["train-drafter", str(tiny), "--data", str(prompts), "--out", str(out), "--max-tokens", "24", *ENGINE, *more]


@pytest.fixture(scope="module")
def trained(tiny: Path, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student of both layers, hardly moved: nearly the target."""
    out = tmp_path_factory.mktemp("run") / "drafter"
    assert main(command(tiny, prompts, out, "--steps", "2", "--lr", "1e-7", "--temperature", "0.7")) == 0
    return out


def test_the_report(trained: Path, tiny: Path) -> None:
    found: dict[str, Any] = json.loads((trained / "report.json").read_text())
    assert found["target"] == str(tiny)
    assert found["drafter"]["layers"] == [0, 1]
    assert found["training"]["step"] == 2
    assert found["answers"]["temperature"] == 0.7
    measured = found["evaluation"]
    assert measured["prompts"] == 1
    assert measured["tokens_per_step"] > 3, "a drafter that is nearly the target has nearly all drafts accepted"
    assert all(share > 0.7 for share in measured["acceptance"])


def test_the_drafter_changes_no_token(trained: Path, tiny: Path) -> None:
    params = SamplingParams(max_tokens=40, temperature=0.7, seed=1)
    settings: dict[str, Any] = {"threads": 1, "kv_cache_gb": 0.01}
    with LLM(tiny, **settings) as llm:
        wanted = llm.generate(["abc"], params)[0].token_ids
    with LLM(tiny, speculate=f"draft:model={trained},adaptive=0", **settings) as llm:
        assert llm.generate(["abc"], params)[0].token_ids == wanted
        assert sum(llm.engine.speculation.counts["draft"].accepted) > 10


def test_the_same_command_continues(trained: Path, tiny: Path, prompts: Path, capsys: pytest.CaptureFixture[str],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is generated or trained again."""
    weights = (trained / "model.safetensors").read_bytes()
    monkeypatch.setattr("drut.train.trainer._step", lambda *_: pytest.fail("a step"))
    monkeypatch.setattr("drut.train.answers._write", lambda *_: pytest.fail("an answer"))
    args = command(tiny, prompts, trained, "--steps", "2", "--lr", "1e-7", "--temperature", "0.7")
    assert main([*args, "--json"]) == 0
    assert (trained / "model.safetensors").read_bytes() == weights
    out = json.loads(capsys.readouterr().out)
    assert out == json.loads((trained / "report.json").read_text())


@pytest.mark.parametrize(("more", "why"), [
    (["--temperature", "0.8"], r"data/settings\.json has temperature 0\.7, not 0\.8: the answers are of another run"),
    (["--temperature", "0.7", "--lr", "1e-6"], r"training\.json has lr 1e-07, not 1e-06: .* remove training\.json"),
    (["--temperature", "0.7", "--layers", "1"], r"training\.json has layers by default, not 1: ")])
def test_other_settings_are_refused(trained: Path, tiny: Path, prompts: Path, capsys: pytest.CaptureFixture[str],
                                    more: list[str], why: str) -> None:
    import re

    args = command(tiny, prompts, trained, "--steps", "2")
    assert main([*args, *([] if "--lr" in more else ["--lr", "1e-7"]), *more]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("drut: error:")]
    assert len(errors) == 1
    assert re.search(why, errors[0]), errors


def test_bad_input_is_named(tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, why in ((command(tiny, tmp_path / "none", tmp_path / "o"), "none: No such file"),
                      (command(tmp_path / "no.gguf", prompts, tmp_path / "o"), "no.gguf"),
                      (command(tiny, prompts, tmp_path / "a,b"), "a,b: a setting cannot name a path with a comma"),
                      (command(tiny, prompts, tmp_path / "o", "--layers", "7"), "layers 0 to 1, not 7")):
        assert main(args) == 2
        assert why in capsys.readouterr().err


def test_rates_by_position() -> None:
    report = report_of(DraftCounts(10, 50, [8, 6, 3, 0, 0]), 2)
    assert report.acceptance == [0.8, 0.75, 0.5, 0.0, 0.0]
    assert report.tokens_per_step == pytest.approx(2.7)
