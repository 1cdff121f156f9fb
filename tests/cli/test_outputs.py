"""Every command where its output cannot be written: one line at most, a sensible exit code, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from drut.cli import main as main_module
from drut.cli.commands import COMMANDS
from drut.cli.main import BROKEN_PIPE_EXIT, FAULT_EXIT, main

CASES = {  # one quick command line of each command that prints something
    "run": ["{tiny}", "-n", "2"],
    "chat": ["{tiny}", "-n", "2"],
    "generate": ["{tiny}", "-p", "hello", "-n", "2", "--json"],
    "serve": ["{tiny}", "--dry-run"],
    "ps": ["--json"],
    "list": ["--catalogue"],
    "pull": ["{tiny}"],
    "show": ["{tiny}"],
    "rm": ["--help"],
    "convert": ["{tiny}", "{tmp}/out.gguf"],
    "train-drafter": ["--help"],
    "models": [],
    "bench": ["workloads"],
    "eval": ["{tiny}", "--windows", "0"],
    "profile": ["--help"],
    "roof": ["--help"],
    "config": ["--all"],
    "completion": ["bash"],
    "help": ["run"],
}


def broken(kind: str) -> io.TextIOWrapper:
    """Opens a standard output that is a full disk, or a pipe that nothing reads."""
    if kind == "full":
        return open("/dev/full", "w", encoding="utf-8")
    read, write = os.pipe()
    os.close(read)
    return open(write, "w", encoding="utf-8")


@pytest.fixture(autouse=True)
def stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello\n")))


def argv(command: str, tiny: str, tmp: Path) -> list[str]:
    return [command, *(word.format(tiny=tiny, tmp=tmp) for word in CASES[command])]


def test_every_command_has_a_case():
    assert list(CASES) == [name for name, _ in COMMANDS]


@pytest.mark.parametrize(("kind", "code"), [("full", FAULT_EXIT), ("closed", BROKEN_PIPE_EXIT)])
@pytest.mark.parametrize("command", CASES)
def test_output_that_cannot_be_written(command, kind, code, tiny, tmp_path, capsys, monkeypatch):
    with broken(kind) as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert main(argv(command, tiny, tmp_path)) == code
        monkeypatch.undo()
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("drut: error")]
    assert errors == (["drut: error: No space left on device"] if kind == "full" else [])


@pytest.mark.parametrize("command", CASES)
def test_output_that_is_not_wanted(command, tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["drut", *argv(command, tiny, tmp_path)])
    monkeypatch.setattr(sys, "stdout", None)  # as Python sets it for >&-
    with pytest.raises(SystemExit) as ended:
        main_module.entry()
    sys.stdout.close()
    assert ended.value.code in (0, None)
    assert "error" not in capsys.readouterr().err


def test_errors_that_cannot_be_written_either(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        assert main(["dance"]) == 2
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


@pytest.mark.parametrize("command", ["run", "generate"])
@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("--regex", "(", "regex"),
        ("--regex", "a{2,1}", "regex"),
        ("--json-schema", "{", "JSON"),
        ("--json-schema", '{"type": "strin"}', "strin"),
        ("--json-schema", None, "No such file"),
    ],
)
def test_a_constraint_that_is_invalid(tiny, tmp_path, capsys, command, flag, text, words):
    value = text
    if flag == "--json-schema":
        value = str(tmp_path / "schema.json")
        if text is not None:
            Path(value).write_text(text)
    assert main([command, tiny, "-p", "hello", flag, value]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("drut: error: ")
    assert words in err.splitlines()[-1]
    assert len(err.splitlines()) <= 2
