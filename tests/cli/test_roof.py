from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from drut.cli import roof as command
from drut.plan.roof import OPERANDS, Roof

pytestmark = pytest.mark.serial

MEASURED = Roof("Some CPU", "numpy", {1: {1 << 23: 12.5}, 2: {1 << 23: 20.0}}, {})


def run(monkeypatch: pytest.MonkeyPatch, home: Path, measured: Roof, *flags: str) -> int:
    monkeypatch.setenv("DRUT_HOME", str(home))
    monkeypatch.setattr(command, "measure", lambda library: measured)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args(flags))


def test_json_is_one_object_of_the_best_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = Roof("Some CPU", "numpy", {1: {1 << 23: 15.0}, 2: {1 << 23: 1.0}}, {})
    assert run(monkeypatch, tmp_path, slower, "--json") == 0
    capsys.readouterr()
    assert run(monkeypatch, tmp_path, MEASURED, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "cpu": "Some CPU", "isa": "numpy",
        "int4_gmac_per_s": None, "int8_gmac_per_s": None, "fp32_gmac_per_s": None, "bf16_gmac_per_s": None,
        "read_gb_per_s": {"1": {"8388608": 15.0}, "2": {"8388608": 20.0}},
    }


def test_table_shows_each_figure_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, tmp_path, MEASURED)
    out = capsys.readouterr().out
    shown = ("Some CPU", "8 MB", "2 threads", "12.5", "20.0", "need the native library")
    assert all(text in out for text in shown)
    gmacs = dict(zip(OPERANDS, ({1: 321.5}, {1: 160.5}, {1: 80.25}, {1: 91.5}), strict=True))
    native = Roof("Some CPU", "avx2", {1: {1 << 18: 99.9}}, gmacs)
    run(monkeypatch, tmp_path, native)
    out = capsys.readouterr().out
    assert all(text in out for text in ("256 kB", "1 thread", "99.9"))
    for name, shown in zip(OPERANDS, ("321.5", "160.5", "80.2", "91.5"), strict=True):
        assert any(f"{name} multiply" in line and shown in line for line in out.splitlines()), name
    assert "native library" not in out
