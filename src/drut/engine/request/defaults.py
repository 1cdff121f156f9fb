"""A model's own sampling defaults: of generation_config.json, of GGUF keys, or of the catalogue."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from pathlib import Path

from drut.engine.request.params import MODEL_FIELDS, SamplingParams
from drut.errors import DrutError, ModelFileError, RequestError
from drut.model.model import ModelFiles
from drut.model.store import find
from drut.model.store.catalogue import entries
from drut.model.weights.json_file import read_json

FILE = "generation_config.json"
GGUF_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_p": "top_p",
    "general.sampling.top_k": "top_k",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}


def model_defaults(files: ModelFiles) -> SamplingParams:
    """Returns the sampling parameters that the model's publisher recommends; the fields without a value are None.

    Values that no request could have are ignored, with a warning that names them.
    """
    if not files.is_gguf:
        return _checked(_of_directory(files), FILE)
    found = {name: files.metadata[key] for key, name in GGUF_KEYS.items() if key in files.metadata}
    if found:
        return _checked(found, files.path.name)
    return _checked(_of_catalogue(files.path), "the catalogue")


def _of_directory(files: ModelFiles) -> Mapping[str, object]:
    path = files.path / FILE
    if not path.exists():
        return {}
    try:
        table = read_json(path)
    except ModelFileError as error:
        warnings.warn(f"drut: {error}: its sampling defaults are ignored", stacklevel=2)
        return {}
    found = {name: table[name] for name in MODEL_FIELDS if table.get(name) is not None}
    if table.get("do_sample") is not False:
        return found
    penalty = {"repetition_penalty": found["repetition_penalty"]} if "repetition_penalty" in found else {}
    return penalty | {"temperature": 0.0}


def _of_catalogue(path: Path) -> Mapping[str, object]:
    """Returns the recommendation of the catalogue's entry whose file `path` is."""
    try:
        known = entries()
    except RequestError as error:  # a model given by its path does not need the catalogue
        warnings.warn(f"drut: {error}: it is ignored", stacklevel=2)
        return {}
    for entry in known.values():
        with contextlib.suppress(DrutError):  # of an entry that is no model: another one may be this
            if entry.sampling and find(entry.name) == path:
                return entry.sampling
    return {}


def _checked(found: Mapping[str, object], where: str) -> SamplingParams:
    good: dict[str, int | float] = {}
    for name, value in found.items():
        try:
            good[name] = _number(name, value)
        except RequestError as error:
            warnings.warn(f"drut: {where}: {error}; it is ignored", stacklevel=2)
    return SamplingParams(**good)  # type: ignore[arg-type]


def _number(name: str, value: object) -> int | float:
    """Returns a valid value of the field. Raises RequestError for another one."""
    if name == "top_k" and isinstance(value, int) and value < 0:
        value = 0
    elif isinstance(value, float):
        value = float(f"{value:.7g}")  # of a float32, the digits that were meant
    SamplingParams(**{name: value})  # type: ignore[arg-type]
    assert isinstance(value, int | float)
    return value
