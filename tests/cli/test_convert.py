"""`drut convert`: its output opens, notes name what does not fit, and errors are one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drut.cli.main import main
from drut.model.describe import describe
from drut.model.model import open_model
from tests.cli.tiny import TEMPLATE, model
from tests.model.convert.test_convert import canonical


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(model())
    return path


def test_to_another_encoding_and_to_a_directory(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(tiny), str(tmp_path / "q8.gguf"), "--encoding", "Q8_0"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'q8.gguf'}\n"
    assert main(["convert", str(tmp_path / "q8.gguf"), str(tmp_path / "hf")]) == 0
    files = open_model(tmp_path / "hf")
    found = describe(files)
    files.close()
    assert (found.quantization, found.licence, found.problems) == ("BF16", None, ())
    assert found.chat_template == TEMPLATE


def test_w8a8_is_named_so_by_every_command(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "w8a8"
    assert main(["convert", str(tiny), str(out), "--encoding", "W8A8"]) == 0
    capsys.readouterr()
    assert main(["show", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "quantization   W8A8" in lines
    assert any(line.startswith("  int8-row-f32 ") for line in lines)
    assert "head           tied to the embedding" in lines
    assert main(["generate", str(out), "-p", "abc", "-n", "2", "--json"]) == 0


def test_w8a8_is_smoothed(tiny: Path, tmp_path: Path) -> None:
    """So that norms, which other encodings keep, have other weights."""
    assert main(["convert", str(tiny), str(tmp_path / "bf16"), "--encoding", "BF16"]) == 0
    assert main(["convert", str(tiny), str(tmp_path / "w8a8"), "--encoding", "W8A8"]) == 0
    bf16, w8a8 = (canonical(open_model(tmp_path / name)) for name in ("bf16", "w8a8"))
    for role in ("attn_norm", "ffn_norm"):
        assert (w8a8[f"layers.1.{role}"] != bf16[f"layers.1.{role}"]).mean() > 0.9
    np.testing.assert_array_equal(w8a8["final_norm"], bf16["final_norm"])


@pytest.mark.parametrize(("arguments", "why"), [
    (["{tiny}", "{tiny}"], "tiny.gguf exists already"),
    (["{tiny}", "{out}", "--encoding", "Q4_0"], "a directory takes F32, F16, BF16, W8A8, not Q4_0 (a .gguf file does)"),
    (["{tiny}", "{out}.gguf", "--encoding", "W8A8"], "Q4_K, Q5_K, Q6_K, not W8A8 (a directory does)"),
    (["{tiny}", "{out}.gguf", "--encoding", "Q2_K"], "'Q2_K' is not one of"),
    (["nothing.gguf", "{out}.gguf"], "no model 'nothing.gguf'")])
def test_errors_are_one_line(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str],
                             why: str) -> None:
    filled = [a.format(tiny=tiny, out=tmp_path / "out") for a in arguments]
    assert main(["convert", *filled]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tiny]
