"""Completion in the shells that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from drut.cli.main import main

# Each prints the completions of LINE, one a line. bash and zsh call the function that Tab calls.
ASK = {
    "bash": """eval "$(drut completion bash)"; COMP_LINE=$LINE; COMP_POINT=${#LINE}; _python_argcomplete drut
printf '%s\\n' "${COMPREPLY[@]}" """,
    "zsh": """compdef() { : }; _describe() { print -l -- ${${(P)2}%%:*} }
eval "$(drut completion zsh)"; words=(drut); BUFFER=$LINE; CURSOR=${#LINE}; _python_argcomplete""",
    "fish": """drut completion fish | source; complete -C "$LINE" | string replace -r '\\t.*' ''""",
}
LINES = {
    "drut ru": {"run"},
    "drut run smollm2-135": {"smollm2-135m-instruct"},
    "drut run m --temp": {"--temperature"},
    "drut generate --kv-dtype ": {"bf16", "int8", "fp32"},
    "drut bench wor": {"workloads"},
    "drut help conf": {"config"},
    "drut completion z": {"zsh"},
    "drut show ./tin": {"./tiny.gguf"},
}


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """An empty home, a folder with a file, and the command on the path."""
    command = tmp_path / "bin" / "drut"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m drut "$@"\n')
    command.chmod(0o755)
    (tmp_path / "tiny.gguf").write_bytes(b"")
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "DRUT_HOME": str(tmp_path / "home"),
            "HOME": str(tmp_path)}


@pytest.mark.parametrize("shell", ASK)
def test_a_shell_completes(shell, environment, tmp_path):
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    lines = LINES if shell == "bash" else dict(list(LINES.items())[:3])  # what is completed is the same in all
    for line, expected in lines.items():
        done = subprocess.run([path, "-c", ASK[shell]], env=environment | {"LINE": line}, cwd=tmp_path, text=True,
                              capture_output=True, check=False)
        assert {word.strip() for word in done.stdout.split("\n") if word.strip()} == expected, (line, done.stderr)


def test_a_script_for_each_shell(capsys):
    for shell in ASK:
        assert main(["completion", shell]) == 0
        assert "drut" in capsys.readouterr().out
    assert main(["completion", "fsh"]) == 2
    assert "no script for 'fsh'; did you mean fish?: one of bash, zsh, fish" in capsys.readouterr().err


def test_completion_loads_no_model_code_for_a_command_s_name(tmp_path):
    request = {"_ARGCOMPLETE": "1", "COMP_LINE": "drut r", "COMP_POINT": "6", "_ARGCOMPLETE_IFS": " "}
    done = subprocess.run(["sh", "-c", 'exec "$0" -X importtime -m drut 8>out 9>/dev/null', sys.executable],
                          cwd=tmp_path, env={**os.environ, **request}, capture_output=True, text=True, check=False)
    assert (tmp_path / "out").read_text().split() == ["run", "rm", "roof"]
    assert "argparse" in done.stderr
    assert "numpy" not in done.stderr
