"""The command lines of the systemd unit and of the image are ones that `drut serve` accepts."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from drut.cli.main import main
from tests.cli import tiny

DEPLOY = Path(__file__).parents[2] / "deploy"
DEFAULT = "smollm2-135m-instruct"


def value(text: str, key: str, between: str) -> str:
    """Of the last line that begins with `key`."""
    lines = [line for line in text.splitlines() if line.startswith(key + between)]
    return lines[-1].removeprefix(key + between)


def unit() -> list[str]:
    return shlex.split(value((DEPLOY / "drut.service").read_text(), "ExecStart", "="))


def image() -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text()
    return [*json.loads(value(text, "ENTRYPOINT", " ")), *json.loads(value(text, "CMD", " "))]


@pytest.mark.parametrize(("command", "host"), [(unit, "127.0.0.1"), (image, "0.0.0.0")])
def test_the_server_accepts_the_command(
        command, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(tiny.model())
    monkeypatch.setenv("DRUT_API_KEY", "key-of-a-test")
    program, *arguments = command()
    assert Path(program).name == "drut"
    assert DEFAULT in arguments
    arguments = [str(model) if a == DEFAULT else a for a in arguments]
    assert main([*arguments, "--port", "0", "--dry-run"]) == 0
    assert f"{host}:0" in capsys.readouterr().out


def test_the_image_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("DRUT_API_KEY", raising=False)
    assert main([*image()[1:], "--port", "0", "--dry-run"]) == 2
    assert "key" in capsys.readouterr().err
