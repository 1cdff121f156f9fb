"""Model references: `hf:ORG/REPO[@REVISION][:FILE.gguf]`, a known name, or a path."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from drut.errors import RequestError
from drut.model.store.catalogue import CatalogueEntry, entries
from drut.model.store.known import KNOWN, KnownModel

HUB_URL = "https://huggingface.co/"
_HUB = re.compile(
    r"hf:(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?:@(?P<revision>[\w][\w./-]*))?"
    r"(?::(?P<file>[^\0]+\.gguf))?",
    re.ASCII,
)


@dataclass(frozen=True)
class HubModel:
    """A repository at a revision (branch, tag or commit), or one GGUF file in it, with its SHA-256 if known."""

    repo: str
    revision: str = "main"
    file: str | None = None
    sha256: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        return f"hf:{self.repo}{revision}" + (f":{self.file}" if self.file else "")


def parse_reference(reference: str) -> KnownModel | HubModel | Path:
    """Parses `reference`; does not look at a path yet. Raises RequestError for a malformed `hf:`."""
    if not reference:
        raise RequestError("the name of the model is empty")
    if reference.startswith(HUB_URL):
        raise RequestError(f"model {reference!r}: for a model of the Hugging Face hub write hf:ORG/REPO")
    if reference in KNOWN:
        return KNOWN[reference]
    if "/" not in reference:  # a path needs no catalogue, and the user's may be invalid
        entry = entries().get(reference)
        if entry is not None:
            return _of_entry(entry)
    if not reference.startswith("hf:"):
        return Path(os.path.expanduser(reference))  # Path.expanduser fails for an unknown ~user
    match = _HUB.fullmatch(reference)
    if match is None or not _inside(match["revision"]) or not _inside(match["file"]):
        raise RequestError(f"model {reference!r}: expected hf:ORG/REPO[@REVISION][:FILE.gguf]")
    return HubModel(match["repo"], match["revision"] or "main", match["file"])


def _of_entry(entry: CatalogueEntry) -> HubModel | Path:
    if entry.repo is None:
        return Path(os.path.expanduser(entry.path or ""))
    checked = parse_reference(f"hf:{entry.repo}@{entry.revision}" + (f":{entry.file}" if entry.file else ""))
    assert isinstance(checked, HubModel)
    return replace(checked, sha256=entry.sha256)


def _inside(name: str | None) -> bool:
    """Whether a name from the user or a hub stays inside the folder that it is appended to."""
    return name is None or not (name.startswith("/") or ".." in PurePosixPath(name).parts)
