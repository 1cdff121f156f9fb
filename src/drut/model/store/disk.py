"""The models that pulls have stored on this machine, and their removal."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from drut.errors import ModelFileError
from drut.home import home
from drut.model.store.catalogue import entries
from drut.model.store.files import locked, writing
from drut.model.store.known import KNOWN
from drut.model.store.progress import folder_bytes, silent
from drut.model.store.wheel import find_known

PARTIAL = ".partial"


@dataclass(frozen=True)
class StoredModel:
    """A model that a pull has stored. `folder` has its files and nothing else; `partial`: the pull has not ended."""

    name: str
    path: Path
    folder: Path
    partial: bool = False

    @property
    def nbytes(self) -> int:
        return folder_bytes(self.folder)


def stored() -> list[StoredModel]:
    """Returns the stored models in order of name; a model of the catalogue has its short name."""
    return sorted([*_of_wheels(), *_of_the_hub()], key=lambda model: model.name)


def model_names() -> list[str]:
    """Returns the names of the stored models and of the catalogue, in order."""
    return sorted({*(model.name for model in stored()), *entries()})


def remove(model: StoredModel) -> int:
    """Removes a stored model; returns the bytes freed. Waits for a pull into the same folder.

    Raises ModelFileError if its files are not in DRUT_HOME, DownloadError if they cannot be removed.
    """
    root = home() / "models"
    if not model.folder.is_relative_to(root):
        raise ModelFileError(f"{model.folder}: not in {root}")
    nbytes = model.nbytes
    if model.folder.parent == root:
        with locked(model.folder, silent), writing(model.folder):
            shutil.rmtree(model.folder)
        return nbytes
    repo = model.folder.parent.parent
    with locked(repo, silent), writing(model.folder):
        shutil.rmtree(model.folder)
        commit, _, file = model.folder.name.removesuffix(PARTIAL).partition("+")
        for ref in (repo / "refs").glob("*"):
            if ref.name.partition("+")[2] == file and ref.read_text(encoding="ascii") == commit:
                ref.unlink()
        if not any((repo / "commits").iterdir()):
            shutil.rmtree(repo)
    return nbytes


def _of_wheels() -> Iterator[StoredModel]:
    for name, known in KNOWN.items():
        folder = home() / "models" / name
        path = find_known(known, folder)
        if path is not None:
            yield StoredModel(name, path, folder)


def _of_the_hub() -> Iterator[StoredModel]:
    short = {(e.repo, e.revision, e.file): e.name for e in entries().values() if e.repo}
    for repo in (home() / "models" / "hf").glob("*--*"):
        name = repo.name.replace("--", "/", 1)
        revisions = {}
        for ref in (repo / "refs").glob("*"):
            revision, _, file = unquote(ref.name).partition("+")
            with contextlib.suppress(OSError, ValueError):
                revisions[ref.read_text(encoding="ascii"), file] = revision
        for folder in (repo / "commits").glob("*"):
            commit, _, file = unquote(folder.name.removesuffix(PARTIAL)).partition("+")
            revision = revisions.get((commit, file), commit)
            full = f"hf:{name}" + ("" if revision == "main" else f"@{revision}") + (f":{file}" if file else "")
            names = (short.get((name, r, file or None)) for r in (commit, revision))
            yield StoredModel(next(filter(None, names), full), folder / file if file else folder, folder,
                              folder.name.endswith(PARTIAL))
