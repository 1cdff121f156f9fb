"""The command as a user gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drut.bench.ablate.book import read
from drut.cli.main import main


def test_what_it_would_measure_is_told_without_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    assert main(["bench", "ablate", "--out", str(tmp_path), "--dry-run", "--document", str(page)]) == 0
    told = capsys.readouterr().out
    assert "continuous-batching: Continuous batching, 16 blocks" in told
    assert "It would take about " in told
    assert "Nothing is measured yet." in page.read_text()
    assert not (tmp_path / "ablation.json").exists()


@pytest.mark.parametrize(("flags", "told"), [
    (["--techniques", "magic"], "unknown technique 'magic'"), (["--rounds", "0"], "--rounds must be from 1"),
    (["--duration", "nan"], "--duration must be from 0.5"), (["--model", "/nowhere"], "/nowhere")])
def test_what_cannot_be_is_refused(flags: list[str], told: str, tmp_path: Path,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ablate", "--out", str(tmp_path), *flags]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.serial
@pytest.mark.model
@pytest.mark.slow
def test_a_short_real_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks may be void, since they are short; what there is must be kept."""
    assert main(["bench", "ablate", "--techniques", "multi-step", "--rounds", "1", "--duration", "1", "--out",
                 str(tmp_path)]) == 0
    kept = read(tmp_path / "ablation.json")
    assert [(c.name, c.outcome) for c in kept.contestants] == [("multi-step/on", "measured"),
                                                               ("multi-step/off", "measured")]
    assert kept.contestants[0].command[-2:] == ["--multi-step", "16"]
    assert kept.contestants[1].command[-2:] == ["--multi-step", "1"]
    assert len(kept.blocks) == 4
    assert "# What each technique buys" in capsys.readouterr().out
