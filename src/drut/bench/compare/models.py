"""The model files in the layouts that engines read, from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from drut.bench.compare.settings import CompareSettings
from drut.bench.engines.engine import EngineFiles
from drut.bench.engines.files import LAYOUTS, load_model_files
from drut.errors import RequestError
from drut.model.store import entries, resolve


def model_files(settings: CompareSettings) -> EngineFiles:
    """Returns the files of `model_files`, then `model`, then each named layout. Known models are fetched if missing.
    Raises RequestError if a file does not exist."""
    fields: dict[str, Any] = {"name": "model"}
    if settings.model_files is not None:
        fields |= msgspec.structs.asdict(load_model_files(Path(settings.model_files).expanduser()))
    if settings.model is not None:
        fields |= _of_model(settings.model)
    fields |= {key: _there(key, given) for key in LAYOUTS if (given := getattr(settings, key)) is not None}
    first = next((fields[key] for key in LAYOUTS if fields.get(key) is not None), None)
    if "name" not in fields or fields["name"] == "model":
        fields["name"] = first.stem if first is not None else "model"
    fields["tokenizer"] = settings.tokenizer or fields.get("tokenizer") or str(first or "")
    return EngineFiles(**fields)


def _of_model(model: str) -> dict[str, Any]:
    if model in entries():
        return {"name": model, "gguf": resolve(model), "tokenizer": model}
    path = _there("model", model)
    return {"name": path.stem, "hf" if path.is_dir() else "gguf": path, "tokenizer": str(path)}


def _there(what: str, given: str) -> Path:
    path = Path(given).expanduser().resolve()
    if not path.exists():
        raise RequestError(f"--{what}: {given} does not exist")
    return path
