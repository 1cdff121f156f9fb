"""Reads the files that the commands of `drut bench` write, by the schema they state."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeAlias

from drut.bench.ablate import schema as ablate
from drut.bench.compare import schema as compare
from drut.bench.files import read_any
from drut.bench.result import schema as single
from drut.bench.search import schema as search
from drut.errors import DrutError

Document: TypeAlias = single.Result | compare.Comparison | search.Search | ablate.Ablation

_TYPES: dict[str, type[Document]] = {single.SCHEMA: single.Result, compare.SCHEMA: compare.Comparison,
                                     search.SCHEMA: search.Search, ablate.SCHEMA: ablate.Ablation}
NAMES = ("comparison.json", "search.json", "ablation.json", "result.json")
_WORDS: dict[type[Document], str] = {single.Result: "result", compare.Comparison: "comparison",
                                     search.Search: "search", ablate.Ablation: "ablation"}


class DocumentSource(NamedTuple):
    """A document and its origin. `label` is unique in a report."""

    label: str
    path: Path
    document: Document


def kind(document: Document) -> str:
    """Returns the kind of a document."""
    return _WORDS[type(document)]


def read_document(path: Path) -> Document:
    """Reads any of the four kinds of file. Raises DrutError if it is missing, too large, damaged or of an unknown
    schema."""
    return read_any(path, _TYPES, "not a file of drut bench")


def find(places: list[Path]) -> list[DocumentSource]:
    """Returns the documents in files and folders: each of NAMES within one, or else the runs of a sweep, one folder
    each. Raises DrutError if there is none."""
    paths: list[Path] = []
    for place in places:
        if place.is_dir():
            found = [place / name for name in NAMES if (place / name).is_file()] or sorted(place.glob("*/result.json"))
            if not found:
                raise DrutError(f"{place} has none of {', '.join(NAMES)}, nor folders with result.json")
            paths += found
        else:
            paths.append(place)
    paths = list(dict.fromkeys(path.resolve() for path in paths))
    return [DocumentSource(label, path, read_document(path)) for label, path in zip(_labels(paths), paths, strict=True)]


def _labels(paths: list[Path]) -> list[str]:
    """Returns the folders' names if they are unique, otherwise as much of each path as makes it unique."""
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        labels = ["/".join(path.parent.parts[-depth:]) for path in paths]
        if len(set(labels)) == len({path.parent for path in paths}):
            break
    twice = {label for label in labels if labels.count(label) > 1}
    return [f"{label}/{path.name}" if label in twice else label for label, path in zip(labels, paths, strict=True)]
