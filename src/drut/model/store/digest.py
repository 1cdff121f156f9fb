"""SHA-256 of a model's files, cached by the file's identity so that a file is read once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path

from drut.errors import ModelFileError
from drut.home import home
from drut.model.store.files import sha256_of, write_atomically
from drut.model.weights.gguf_split import part_paths


def model_digest(path: str | os.PathLike[str]) -> str:
    """Returns the SHA-256 in hex of a model file (with all its parts), or of a directory's `config.json`, its
    quantization settings and all safetensors files.

    Raises ModelFileError, which names the file, if one cannot be read.
    """
    path = Path(path)
    if path.is_dir():
        modelopt = path / "hf_quant_config.json"
        files = sorted([path / "config.json", *path.glob("*.safetensors"), *([modelopt] if modelopt.is_file() else [])])
    else:
        files = part_paths(path)
    if files == [path]:
        return _file_digest(path)
    return hashlib.sha256("".join(f"{f.name} {_file_digest(f)}\n" for f in files).encode()).hexdigest()


def remember(path: Path, sha256: str) -> None:
    """Stores the SHA-256 just verified for `path`. If the home folder is not writable, the file is read again later."""
    with contextlib.suppress(OSError):
        note = _note(path)
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(note, json.dumps({"file": _identity(path.stat()), "sha256": sha256}))


def _file_digest(path: Path) -> str:
    try:
        if not path.is_file():
            raise ModelFileError(f"{path}: no such file")
        known = _recall(path)
        if known is not None:
            return known
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            sha256 = sha256_of(file, lambda done: None)
            after = os.fstat(file.fileno())
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror or error}") from None
    if _identity(before) != _identity(after):
        raise ModelFileError(f"{path}: the file changed during reading")
    remember(path, sha256)
    return sha256


def _recall(path: Path) -> str | None:
    try:
        note = json.loads(_note(path).read_text(encoding="utf-8"))
        if note["file"] == _identity(path.stat()) and re.fullmatch("[0-9a-f]{64}", note["sha256"]):
            return str(note["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cached digest, or a damaged one: the file is read again
    return None


def _note(path: Path) -> Path:
    key = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()
    return home() / "digests" / f"{key}.json"


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]
