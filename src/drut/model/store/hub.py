"""Fetches a model from the Hugging Face hub, through `huggingface_hub`: safetensors and GGUF only, never a pickle.

Under the repository's folder, `commits/COMMIT` is a finished directory, `commits/COMMIT+FILE` one that holds
a single GGUF file, and `refs/REVISION[+FILE]` holds the commit of a revision at its last pull.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from drut.errors import DownloadError, ModelFileError
from drut.model.store.digest import remember
from drut.model.store.files import locked, publish, sha256_of, write_atomically, writing
from drut.model.store.progress import DownloadProgress, watching
from drut.model.store.reference import HubModel
from drut.model.weights.safetensors import INDEX, SINGLE, read_index

# Files that are fetched in addition to the weights, if a repository has them.
SMALL_FILES = frozenset((
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.json",
    "hf_quant_config.json",
    "chat_template.jinja", "LICENSE", "LICENSE.txt", "LICENSE.md", "README.md", INDEX,
))  # fmt: skip
_TEMPLATES = re.compile(r"additional_chat_templates/[^/]+\.jinja")
_COMMIT = re.compile("[0-9a-f]{40}")


class UnreachableError(DownloadError):
    """The hub cannot be reached."""


@dataclass(frozen=True)
class HubFile:
    """A file as the hub describes it; size in bytes and SHA-256 if the hub has them."""

    name: str
    size: int | None
    sha256: str | None


def find_hub(model: HubModel, folder: Path) -> Path | None:
    """Returns what an earlier pull of this reference completed in `folder`, or None. Uses no network."""
    commit = model.revision
    if not _COMMIT.fullmatch(commit):
        try:
            commit = _ref(model, folder).read_text(encoding="ascii")
        except (OSError, ValueError):
            return None
    place = _place(model, commit, folder)
    return _path(model, place) if _COMMIT.fullmatch(commit) and place.is_dir() else None


def pull_hub(model: HubModel, folder: Path, progress: DownloadProgress) -> Path:
    """Returns the directory or GGUF file at the current commit of the revision; offline, the one pulled before.

    Raises DownloadError if `huggingface_hub` is missing, the hub refuses, or a file differs from the hub's
    description; ModelFileError if the repository has no readable model.
    """
    api = _api(model)
    with locked(folder, progress):
        try:
            commit, files = _describe(api, model)
        except UnreachableError:
            cached = find_hub(model, folder)
            if cached is None:
                raise
            return cached
        place = _place(model, commit, folder)
        if not place.is_dir():
            partial = place.with_name(place.name + ".partial")  # after a failure the next pull resumes it
            arrived = _fetch(api, model, commit, files, partial, progress)
            with writing(place):
                shutil.rmtree(partial / ".cache", ignore_errors=True)
                publish(partial, place)
            for file in arrived:
                if file.sha256:
                    remember(place / file.name, file.sha256)
        with writing(folder):
            _ref(model, folder).parent.mkdir(exist_ok=True)
            write_atomically(_ref(model, folder), commit)
        return _path(model, place)


def _key(name: str, model: HubModel) -> str:
    return quote(f"{name}+{model.file}" if model.file else name, safe="+")


def _ref(model: HubModel, folder: Path) -> Path:
    return folder / "refs" / _key(model.revision, model)


def _place(model: HubModel, commit: str, folder: Path) -> Path:
    return folder / "commits" / _key(commit, model)


def _path(model: HubModel, place: Path) -> Path:
    return place / model.file if model.file else place


def _api(model: HubModel) -> Any:
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        raise DownloadError(f"{model}: needs huggingface_hub: pip install 'drut[hf]'") from None
    return hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


@contextlib.contextmanager
def _asking(model: HubModel) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # from requests, httpx or the hub client: the class differs between versions
        why = " ".join(str(error).split())[:300] or type(error).__name__
        if getattr(error, "response", None) is None:
            raise UnreachableError(f"{model}: the hub cannot be reached: {why}") from None
        raise DownloadError(f"{model}: the hub refused: {why}") from None


def _describe(api: Any, model: HubModel) -> tuple[str, dict[str, HubFile]]:
    """Returns the commit of the revision, and the repository's files by name."""
    with _asking(model):
        info = api.model_info(model.repo, revision=model.revision, files_metadata=True)
    if not _COMMIT.fullmatch(info.sha or ""):
        raise DownloadError(f"{model}: the hub has no commit for revision {model.revision}")
    files = (HubFile(s.rfilename, s.size, getattr(s.lfs, "sha256", None)) for s in info.siblings or ())
    return info.sha, {file.name: file for file in files}


def _fetch(
    api: Any, model: HubModel, commit: str, files: dict[str, HubFile], partial: Path, progress: DownloadProgress
) -> list[HubFile]:
    """Downloads the files of `model` into `partial` and verifies them. Order: small files first, because they name the
    weight files."""
    with writing(partial):
        partial.mkdir(parents=True, exist_ok=True)
    if model.file:
        if model.file not in files:
            raise ModelFileError(f"{model}: the repository has no such file{_offer(model, files)}")
        if model.sha256 not in (None, files[model.file].sha256):
            raise DownloadError(f"{model}: the hub's file has the SHA-256 {files[model.file].sha256}, "
                                f"the catalogue {model.sha256}")
        small, weights = [], [model.file]
    else:
        if "config.json" not in files or not files.keys() & {SINGLE, INDEX}:
            raise ModelFileError(f"{model}: no config.json with safetensors weights{_offer(model, files)}")
        small = sorted(name for name in files if name in SMALL_FILES or _TEMPLATES.fullmatch(name))
        _download(api, model, commit, [files[name] for name in small], partial, progress)
        weights = [SINGLE] if SINGLE in files else sorted(set(read_index(partial / INDEX).values()))
    for name in weights:
        if name not in files:
            raise ModelFileError(f"{model}: the repository lacks the shard {name!r} that its index names")
    _download(api, model, commit, [files[name] for name in weights], partial, progress)
    return [files[name] for name in (*small, *weights)]


def _offer(model: HubModel, files: dict[str, HubFile]) -> str:
    names = sorted(name for name in files if name.endswith(".gguf"))
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"; its GGUF files (append one after a colon): {', '.join(names[:5])}{more}" if names else ""


def _download(
    api: Any, model: HubModel, commit: str, files: list[HubFile], partial: Path, progress: DownloadProgress
) -> None:
    total = sum(file.size or 0 for file in files)
    patterns = [glob.escape(file.name) for file in files]
    with (
        progress(f"downloading {model}", total) as report,
        watching(partial, report, total),
        _no_other_bars(),
        _asking(model),
    ):
        api.snapshot_download(model.repo, revision=commit, local_dir=partial, allow_patterns=patterns)
    for file in files:
        _verify(model, file, partial / file.name, progress)


def _verify(model: HubModel, file: HubFile, path: Path, progress: DownloadProgress) -> None:
    """Removes a file that differs from the hub's description, because the next pull would take it for complete."""
    size = path.stat().st_size if path.is_file() else 0
    if not path.is_file() or (file.size is not None and size != file.size):
        path.unlink(missing_ok=True)
        raise DownloadError(f"{model}: {file.name} has {size} bytes instead of {file.size}; pull again")
    if file.sha256 is None:
        return
    with path.open("rb") as opened, progress(f"verifying {file.name}", size) as report:
        found = sha256_of(opened, report)
    if found != file.sha256:
        path.unlink()
        raise DownloadError(f"{model}: the SHA-256 of {file.name} is {found}, not {file.sha256}")


@contextlib.contextmanager
def _no_other_bars() -> Iterator[None]:
    """Disables the progress bars of huggingface_hub, which would overwrite ours."""
    utils = importlib.import_module("huggingface_hub.utils")
    if utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()
