"""Where other engines are installed, and in which versions."""

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
    """Of engines with an environment each: DRUT_PEERS, else build/peers of the checkout that this file is in."""
    if given := os.environ.get("DRUT_PEERS"):
        return Path(given).expanduser().absolute()
    return Path(__file__).parents[4] / "build" / "peers"


def program(name: str, command: str, how: str) -> Path:
    """The executable `command` of the engine `name`: in its own environment, else on PATH. CannotRunError, which says
    `how` it is got, where it is in neither."""
    own = folder() / name / "bin" / command
    if os.access(own, os.X_OK):
        return own
    if found := shutil.which(command):
        return Path(found)
    raise CannotRunError(f"{command} is neither in {own.parent} nor on PATH; {how}")


def python(name: str, command: str, how: str) -> Path:
    """The interpreter of the engine `name`: of its own environment, else that beside `command` on PATH, where it has
    such a command."""
    own = folder() / name / "bin" / "python"
    if os.access(own, os.X_OK):
        return own
    found = shutil.which(command) if command else None
    beside = Path(found).resolve().with_name("python") if found else None
    if beside is None or not os.access(beside, os.X_OK):
        on_path = command and f", and no {command} on PATH"
        raise CannotRunError(f"there is no interpreter in {own.parent}{on_path}; {how}")
    return beside


def versions(interpreter: Path, packages: Sequence[str]) -> dict[str, str]:
    """Of those packages that it has, by their metadata, and its own. CannotRunError where it does not run."""
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run([interpreter, "-c", _ASK, *packages], check=True, capture_output=True, timeout=ASK_S,
                              env=environ, stdin=subprocess.DEVNULL)
        return msgspec.json.decode(done.stdout, type=dict[str, str])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise CannotRunError(f"{interpreter} does not run: {error}") from None


def told(command: Sequence[str | Path]) -> list[str]:
    """The lines a program writes to either output, as for --version; none where it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ASK_S,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]


def library(name: str) -> Path | None:
    """A shared library to preload: one put beside the engines, else the system's."""
    for root in (folder(), Path("/usr/lib")):
        pattern = f"*/usr/lib/**/{name}" if root != Path("/usr/lib") else f"*/**/{name}"
        if found := next(iter(sorted(root.glob(pattern))), None):
            return found
    return None


def has_nvidia() -> bool:
    """Whether this machine has an NVIDIA GPU with its driver."""
    return sys.platform == "linux" and Path("/dev/nvidiactl").exists()
