"""Opens the tokenizer of any file or folder without reading weights."""

from __future__ import annotations

from pathlib import Path

from drut.errors import ModelFileError
from drut.model.tokenizer.gguf import from_gguf
from drut.model.tokenizer.hf import from_hf
from drut.model.tokenizer.tokenizer import Tokenizer
from drut.model.weights.gguf import GGUFFile


def open_tokenizer(path: Path) -> Tokenizer:
    """Returns the tokenizer of a GGUF file (of any architecture), of a folder with a `tokenizer.json`, or of that file.

    Raises ModelFileError for any other path, and the errors of `from_gguf` and `from_hf`.
    """
    if path.is_dir():
        return from_hf(path)
    if path.name == "tokenizer.json":
        return from_hf(path.parent)
    if path.suffix == ".json":
        raise ModelFileError(f"{path}: a tokenizer's file must be called tokenizer.json")
    file = GGUFFile(path)
    try:
        return from_gguf(file.metadata, path.name)
    finally:
        file.close()
