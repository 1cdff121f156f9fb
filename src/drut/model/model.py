"""A model on disk: its spec, the places of its tensors, and its tokenizer."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from drut.errors import ModelFileError
from drut.kernels.backend import Backend, PackingBackend
from drut.model.families import Family, family_of_gguf, family_of_hf
from drut.model.families.architecture import architecture, check_text_part
from drut.model.families.table import Stored
from drut.model.packs import PackCache, load_through
from drut.model.spec import ModelSpec
from drut.model.tokenizer import Tokenizer, from_gguf, from_hf
from drut.model.weights.decoded import DecodedSource
from drut.model.weights.gguf_split import open_gguf
from drut.model.weights.head import shared_under_head, with_stored_head
from drut.model.weights.json_file import read_json
from drut.model.weights.loader import Report, Weights, check_tensors, load_weights
from drut.model.weights.metadata import require
from drut.model.weights.outline import outline_weights
from drut.model.weights.quantized import open_quantized
from drut.model.weights.safetensors import open_safetensors
from drut.model.weights.source import TensorSource
from drut.model.weights.text_part import TextPart, text_config


@dataclass(frozen=True)
class ModelFiles:
    """An open model. `load` reads the weights."""

    path: Path
    spec: ModelSpec
    source: TensorSource
    table: Mapping[str, Stored]
    metadata: Mapping[str, object]  # GGUF keys, or the config
    is_gguf: bool

    def tokenizer(self) -> Tokenizer | None:
        """Returns the model's tokenizer; None for a directory without one."""
        if self.is_gguf:
            return from_gguf(self.metadata, self.path.name)
        if not (self.path / "tokenizer.json").exists():
            return None
        return from_hf(self.path)

    def check(self) -> None:
        """Checks that every tensor is present, with its expected shape and a supported encoding."""
        check_tensors(self.spec, self.source, self.table, self.path.name)

    def load(self, backend: Backend, report: Report | None = None, packs: PackCache | None = None) -> Weights:
        """Packs the weights for `backend`, or maps them from `packs` if they were packed before."""
        if packs is not None and isinstance(backend, PackingBackend):
            return load_through(packs, self.spec, self.source, self.table, backend, self.path)
        return load_weights(self.spec, self.source, self.table, backend, self.path.name, report)

    def outline(self, backend: Backend) -> Weights:
        """Returns the outline (form without data) of the weights that `load` would pack; no weight is read."""
        self.check()
        return outline_weights(self.spec, self.source, self.table, backend)

    def decoded(self) -> ModelFiles:
        """Returns the same model with its weights as float32."""
        return replace(self, source=DecodedSource(self.source))

    def close(self) -> None:
        self.source.close()


def open_model(path: str | Path) -> ModelFiles:
    """Opens a `.gguf` file or a HF-style directory. An error names the file and the item."""
    path = Path(path)
    if path.is_dir():
        return _open_directory(path)
    if not path.exists():
        raise ModelFileError(f"{path}: no such file or directory")
    return _open_gguf(path)


def _open_gguf(path: Path) -> ModelFiles:
    file = open_gguf(path)
    family = family_of_gguf(require(file.metadata, "general.architecture", str, path.name))
    spec = family.from_gguf(file.metadata, file, path.name)
    return ModelFiles(path=path, spec=spec, source=file, table=family.gguf_table(spec), metadata=file.metadata,
                      is_gguf=True)


def _open_directory(path: Path) -> ModelFiles:
    config_path = path / "config.json"
    if not config_path.exists():
        raise ModelFileError(f"{path}: no config.json, so it is not a model directory")
    config = read_json(config_path)
    where = f"{path.name}/config.json"
    named = architecture(config, where)
    config = {**config, "architectures": [named]}
    family: Family = family_of_hf(named)
    is_multimodal = "text_config" in config
    text_cfg = text_config(config, where) if is_multimodal else config
    if is_multimodal:
        check_text_part(config, text_cfg, where)
    spec = family.from_hf(text_cfg, where)
    source = open_quantized(open_safetensors(path), config, path)
    if is_multimodal:
        source = text = TextPart(source)
        skipped = f"drut: {path.name}: {text.skipped} vision tensors are skipped; the model takes text only"
        warnings.warn(skipped, stacklevel=2)
    spec = with_stored_head(spec, source, path.name)
    return ModelFiles(path=path, spec=spec, source=source, table=shared_under_head(family.hf_table(spec), spec, source),
                      metadata=text_cfg, is_gguf=False)
