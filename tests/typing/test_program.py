"""A user's program is checked as the user would: by mypy --strict, against the installed package."""

from __future__ import annotations

import re
import subprocess
import sys
import typing
from dataclasses import fields
from pathlib import Path

import pytest

import drut
from drut.config import EngineConfig, EngineSettings

PROGRAM = Path(__file__).with_name("program.py")


@pytest.mark.slow
def test_strict_mypy_accepts_the_right_lines_and_refuses_each_wrong_one(tmp_path: Path,
                                                                        pytestconfig: pytest.Config) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"  # outside this project, whose settings of mypy would count
    program.write_text(PROGRAM.read_text())
    cache = pytestconfig.cache.mkdir("mypy") if pytestconfig.cache is not None else tmp_path / "cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
               f"--cache-dir={cache}", program.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = {(int(line), code) for line, code in re.findall(r"^program.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout,
                                                            re.MULTILINE)}
    wanted = {(number, line.partition("# E: ")[2]) for number, line in enumerate(PROGRAM.read_text().splitlines(), 1)
              if "# E: " in line}
    assert found == wanted, done.stdout + done.stderr
    assert len(wanted) > 10


def test_the_settings_of_llm_and_async_engine_are_those_of_the_config() -> None:
    config = typing.get_type_hints(EngineConfig)
    assert typing.get_type_hints(EngineSettings) == {f.name: config[f.name] for f in fields(EngineConfig)}


def test_the_package_is_marked_as_typed() -> None:
    assert Path(drut.__file__).with_name("py.typed").exists()


def test_all_public_names_are_listed_and_imported() -> None:
    names = subprocess.run([sys.executable, "-c", "from drut import *; import drut; "
                            "print(all(getattr(drut, name) is globals()[name] for name in drut.__all__), *dir(drut))"],
                           capture_output=True, text=True, check=True).stdout.split()
    assert names[0] == "True"
    assert set(names[1:]) == {*drut.__all__, "__version__"}
