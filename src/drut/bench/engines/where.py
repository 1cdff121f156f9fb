"""Finds the installations of other engines and their versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from drut.bench.engines.engine import CannotRunError

ASK_S = 60.0
_ASK = """
import importlib.metadata as m, json, sys
found = {"python": sys.version.split()[0]}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def folder() -> Path:
    """Returns the folder with an environment for each engine: DRUT_PEERS, else build/peers of the checkout with this
    file."""
    if given := os.environ.get("DRUT_PEERS"):
        return Path(given).expanduser().absolute()
    return Path(__file__).parents[4] / "build" / "peers"


def program(name: str, command: str, how: str) -> Path:
    """Returns the executable `command` of the engine `name`: in its own environment, else on PATH. Otherwise raises
    CannotRunError, which contains `how` to install it."""
    own = folder() / name / "bin" / command
    if os.access(own, os.X_OK):
        return own
    if found := shutil.which(command):
        return Path(found)
    raise CannotRunError(f"{command} is neither in {own.parent} nor on PATH; {how}")


def python(name: str, command: str, how: str) -> Path:
    """Returns the interpreter of the engine `name`: in its own environment, else in the folder of `command` on PATH, if
    the engine has such a command."""
    own = folder() / name / "bin" / "python"
    if os.access(own, os.X_OK):
        return own
    found = shutil.which(command) if command else None
    own_python = Path(found).resolve().with_name("python") if found else None
    if own_python is None or not os.access(own_python, os.X_OK):
        on_path = command and f", and no {command} on PATH"
        raise CannotRunError(f"there is no interpreter in {own.parent}{on_path}; {how}")
    return own_python


def versions(interpreter: Path, packages: Sequence[str]) -> dict[str, str]:
    """Returns the versions of the installed packages among `packages`, by their metadata, and of the interpreter.
    Raises CannotRunError if the interpreter does not run."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run([interpreter, "-c", _ASK, *packages], check=True, capture_output=True, timeout=ASK_S,
                              env=environ, stdin=subprocess.DEVNULL)
        return msgspec.json.decode(done.stdout, type=dict[str, str])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise CannotRunError(f"{interpreter} does not run: {error}") from None


def output_lines(command: Sequence[str | Path]) -> list[str]:
    """Returns the lines that a program writes to standard output and error, as for --version; none if it cannot be
    run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ASK_S,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def library(name: str) -> Path | None:
    """Returns a shared library to preload: one in the folder of the engines, else the system's."""
    for root in (folder(), Path("/usr/lib")):
        pattern = f"*/usr/lib/**/{name}" if root != Path("/usr/lib") else f"*/**/{name}"
        if found := next(iter(sorted(root.glob(pattern))), None):
            return found
    return None


def has_nvidia() -> bool:
    """Returns whether this machine has an NVIDIA GPU and its driver."""
    return sys.platform == "linux" and Path("/dev/nvidiactl").exists()
