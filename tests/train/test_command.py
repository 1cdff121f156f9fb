"""`drut train-drafter` without torch: the error, the import rule, and settings that are refused first."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from drut.cli.main import main
from drut.train import requirement
from tests.docs.pages import ROOT


def test_without_torch_one_line_has_the_command(tiny: Path, prompts: Path, tmp_path: Path,
                                                capsys: pytest.CaptureFixture[str],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirement, "find_spec", lambda name: None)
    assert main(["train-drafter", str(tiny), "--data", str(prompts), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "drut: error: training a drafter needs torch: pip install torch==2.13.0\n"
    assert not (tmp_path / "out").exists()


def test_the_extra_is_that_version() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras["train"] == [requirement.TORCH]


@pytest.mark.slow
def test_neither_package_nor_commands_import_torch() -> None:
    code = ("import sys, drut; from drut.cli.describe import describe; list(describe()); "
            "sys.exit('torch' in sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("more", "why"), [
    (["--method", "eagle3"], "'eagle3' is not one of student"), (["--layers", "0,x"], "numbers with commas, not '0,x'"),
    (["--layers", "1,0"], "--layers must be rising numbers, not 1,0"), (["--steps", "0"], "--steps must be 1 to"),
    (["--dtype", "f8"], "'f8' is not one of fp32, bf16"),
    (["--minutes", "0"], "--minutes must be above 0, not 0"), (["--lr", "2"], "--lr must be between 0 and 1, not 2"),
    (["--drafts", "65"], "--drafts must be 1 to 64, not 65"), (["--batch", "0"], "--batch must be 1 to")])
def test_a_bad_setting_is_named(capsys: pytest.CaptureFixture[str], more: list[str], why: str) -> None:
    assert main(["train-drafter", "m", "--data", "d", "--out", "o", *more]) == 2
    err = capsys.readouterr().err
    assert why in err
    assert err.count("\n") == 1
