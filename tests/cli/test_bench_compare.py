"""`drut bench compare` as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from drut.bench.compare.settings import CompareSettings, settings
from drut.cli.main import main
from drut.errors import RequestError
from tests.bench.compare.made import FAST, script, work


def command(folder: Path, *flags: str) -> list[str]:
    return ["bench", "compare", "--engines", script(folder, "a", FAST), script(folder, "b", FAST), "--cells",
            f"{work(folder)}@2", "--gate", "lengths", "--gate-prompts", "1", "--gate-tokens", "4", "--sequences", "2",
            "--warmup", "0.1", "--duration", "0.5", *flags]


def test_a_dry_run_tells_how_long_it_takes_and_starts_nothing(tmp_path: Path,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, "--rounds", "7", "--dry-run", "--out", str(tmp_path / "out"))) == 0
    out, err = capsys.readouterr()
    assert "14 turns of 2 contestants at 1 cells: at least 1 min" in err
    assert out == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("flags", "words"), [
    (["--rounds", "0"], "rounds"), (["--gate-exact", "2"], "gate_exact"), (["--base", "z"], "is not a contestant"),
    (["--config", "/none.toml"], "--config: /none.toml"), (["--cells", "nope@1"], "unknown workload 'nope'"),
])
def test_what_makes_no_sense_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str],
                                         words: str) -> None:
    assert main(command(tmp_path, "--out", str(tmp_path / "out"), *flags)) == 2
    err = capsys.readouterr().err
    assert err.startswith("drut: error: ")
    assert len(err.splitlines()) == 1
    assert words in err


def test_a_comparison_is_not_written_over_and_only_rounds_change_one(tmp_path: Path,
                                                                     capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/comparison.json").write_text("{}")
    assert main(command(tmp_path, "--out", str(tmp_path / "out"))) == 2
    assert "has a comparison already; --resume" in capsys.readouterr().err
    assert main(["bench", "compare", "--resume", str(tmp_path), "--seed", "3"]) == 2
    assert "only --rounds" in capsys.readouterr().err
    assert main(["bench", "compare", "--resume", str(tmp_path / "out")]) == 2
    assert "is not a comparison" in capsys.readouterr().err


def test_a_file_of_settings_is_as_strict_as_flags_and_gives_way_to_them(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('engines = ["drut"]\ncells = ["chat@8"]\nrounds = 3\nrestart = true\n')
    assert settings({"rounds": 4}, path) == CompareSettings(engines=["drut"], cells=["chat@8"], rounds=4, restart=True)
    for text, words in (('rounds = "3"', "rounds"), ("colour = 1", "colour"), ("rounds = ", "--config"),
                        ("rounds = 3", "engines")):
        path.write_text(text)
        with pytest.raises(RequestError, match=words):
            settings({}, path)


@pytest.mark.slow
def test_files_are_there_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(command(tmp_path, "--rounds", "1", "--out", str(out), "--price", "1/h@2026-11-01")) == 0
    assert {p.name for p in out.iterdir()} >= {"comparison.json", "blocks.csv", "summary.md", "reference.json", "logs",
                                                "report.html"}
    assert capsys.readouterr().out.rstrip() == (out / "summary.md").read_text().rstrip()
    data = json.loads((out / "comparison.json").read_text())
    assert [c["outcome"] for c in data["contestants"]] == ["measured", "measured"]
    assert all(block["figures"]["cost_per_million_output"] > 0 for block in data["blocks"])
    assert all(block["figures"]["cpu_s_per_1k_tokens"] > 0 for block in data["blocks"])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_readable_result_and_no_process(tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "drut", *command(tmp_path, "--rounds", "500", "--out", str(out))],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ})
    assert process.stderr is not None
    for line in process.stderr:
        if " 1 of 1000" in line:
            break
    family = psutil.Process(process.pid).children(recursive=True)
    assert family
    time.sleep(0.2)
    process.send_signal(number)
    process.stderr.read()
    assert process.wait(120) == 130
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    data = json.loads((out / "comparison.json").read_text())
    assert not data["finished"]
    assert len(data["blocks"]) >= 1
    assert "**Not finished**" in (out / "summary.md").read_text()
