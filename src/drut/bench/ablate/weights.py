"""Converts a model's file to another encoding of its matrices, unless the converted file exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from drut.bench.engines.engine import CannotRunError, EngineFiles

MAKING_S = 600.0


def model_files(name: str, path: Path, folder: Path, weights: str) -> EngineFiles:
    """Returns `path` itself for empty `weights`, else a GGUF file in `folder`, which `drut convert` writes once. Raises
    CannotRunError."""
    if weights:
        path = _converted(path, folder / f"{name.replace('/', '-')}-{weights}.gguf", weights)
    if path.is_dir():
        return EngineFiles(name, str(path), hf=path, label=weights)
    return EngineFiles(name, str(path), gguf=path, label=weights)


def _converted(path: Path, made: Path, weights: str) -> Path:
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    partial = made.with_name(f"partial-{made.name}")
    argv = [sys.executable, "-m", "drut", "convert", str(path), str(partial), "--encoding", weights]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=MAKING_S, check=False)
    except subprocess.TimeoutExpired:
        raise CannotRunError(f"converting {path.name} to {weights} took more than {MAKING_S:g} s") from None
    if done.returncode:
        raise CannotRunError(f"converting {path.name} to {weights}: {(done.stderr.strip() or 'it failed')[-300:]}")
    partial.replace(made)
    return made
