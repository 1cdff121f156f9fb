"""What the pages hold: their blocks of code and the commands in them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
READMES = [ROOT / "README.md", ROOT / "README.hi.md"]
PAGES = [*READMES, ROOT / "CONTRIBUTING.md", *DOCS, *sorted((ROOT / "deploy").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n((?:(?!```).*\n)*)```$", re.MULTILINE)
_CODE, _OUTPUT = (FENCED.pattern.replace(r"(\w*)", names) for names in ("(sh|python)", "(?:text|json)"))
SHOWN = re.compile(f"{_CODE}\n\n{_OUTPUT}", re.MULTILINE)
SHELL = ("|", "||", "&&", "&", ";", ">", ">>", "<", "2>")


class Example(NamedTuple):
    """A block of code that is followed by its output."""

    language: str
    code: str
    output: str


def blocks(text: str, language: str) -> list[str]:
    return [code for name, code in FENCED.findall(text) if name == language]


def shown(text: str) -> list[Example]:
    return [Example(*found) for found in SHOWN.findall(text)]


def shell_lines(text: str) -> list[str]:
    """The lines of shell with a `drut` command, fenced or indented, continued ones joined."""
    fenced = "\n".join(blocks(text, "sh"))
    indented = "\n".join(re.findall(r"^ {4}(.*)$", FENCED.sub("", text), flags=re.MULTILINE))
    lines = f"{fenced}\n{indented}".replace("\\\n", " ").splitlines()
    return [line for line in lines if re.search(r"(^|[ |/])drut ", line) and re.match(r"[\w./~$]", line)]


def command_lines(text: str) -> Iterator[list[str]]:
    """The arguments of each `drut` command in the lines of shell, without what the shell takes."""
    for line in shell_lines(text):
        words = shlex.split(re.sub(r"\$[\w!]+", "1", line), comments=True)
        for start, word in enumerate(words):
            if word in ("drut", ".venv/bin/drut"):
                rest = words[start + 1:]
                yield rest[:next((i for i, w in enumerate(rest) if w in SHELL), len(rest))]


def output(code: str, folder: Path, language: str = "sh") -> str:
    """What the code prints in `folder`; it must succeed."""
    program = ["bash", "-ec"] if language == "sh" else [sys.executable, "-c"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([*program, code], cwd=folder, env={**os.environ, "PATH": path}, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
