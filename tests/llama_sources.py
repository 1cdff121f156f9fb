"""Vocabularies and chat templates of published models, out of the source package of llama-cpp-python.

Fetched by pip once, so that the user's index settings hold, and kept beside the models in Drut's home.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from drut.home import home
from drut.model.store.files import locked, scratch_in
from drut.model.store.progress import silent

REQUIREMENT = "llama-cpp-python==0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
MODELS = "/vendor/llama.cpp/models/"


def llama_models() -> Path:
    """The folder of `ggml-vocab-NAME.gguf` with `.inp` and `.out`, and of `templates/NAME.jinja`."""
    folder = home() / "tests" / REQUIREMENT
    with locked(folder, silent):
        made = folder / "models"
        if not made.is_dir():
            with scratch_in(folder) as scratch:
                _unpack(_fetch(scratch), scratch / "models")
                (scratch / "models").rename(made)
    return made


def chat_templates() -> dict[str, str]:
    """Their sources by name."""
    return {path.stem: path.read_text(encoding="utf-8")
            for path in sorted((llama_models() / "templates").glob("*.jinja"))}


def _fetch(scratch: Path) -> Path:
    """The source package, with its checksum verified; pip asks scikit-build-core, which building Drut needs too."""
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--quiet", "--no-deps", "--no-build-isolation",
               "--no-binary=:all:", "-d", os.fspath(scratch), REQUIREMENT]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    (archive,) = scratch.glob("*.tar.gz")
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    assert digest == SHA256, f"{REQUIREMENT}: not the package that these tests are of"
    return archive


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as package:
        for member in package:
            _, found, name = member.name.partition(MODELS)
            if found and member.isfile() and (data := package.extractfile(member)) is not None:
                assert ".." not in name
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data.read())
