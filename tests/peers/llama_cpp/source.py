"""llama.cpp's server tests: unpacked from the source package of llama-cpp-python, which carries them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

VERSION = "0.3.36"
PACKAGE = f"llama_cpp_python-{VERSION}"
INSIDE = PurePosixPath(PACKAGE) / "vendor/llama.cpp"
WANTED = ("tools/server/tests/unit", "models/templates")  # the tests, and templates that they name


def unpacked(folder: Path) -> Path:
    """The directory of llama.cpp in `folder`, with what is wanted of it; pip fetches it once."""
    root = folder / INSIDE
    if (root / "complete").exists():
        return root
    with tarfile.open(_archive(folder)) as archive:
        members = [m for m in archive if any(PurePosixPath(m.name).is_relative_to(INSIDE / name) for name in WANTED)]
        archive.extractall(folder, members, filter="data")
    (root / "complete").touch()
    return root


def _archive(folder: Path) -> Path:
    path = folder / f"{PACKAGE}.tar.gz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                        "llama-cpp-python", "--dest", str(folder), f"llama-cpp-python=={VERSION}"], check=True)
    return path
