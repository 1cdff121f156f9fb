"""Checkpoints of drafters that are heads of a model: a directory with config.json and safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError
from drut.formats.decode import decode
from drut.formats.encoding import encoding
from drut.kernels.backend import Backend
from drut.kernels.ops import F32
from drut.kernels.weight import Matrix, Vector
from drut.model.weights.json_file import read_json
from drut.model.weights.mapping import quote
from drut.model.weights.safetensors import SafetensorsFile
from drut.model.weights.source import TensorInfo

PICKLED = (".bin", ".pt", ".pth")
CONVERTER = "drut convert-drafter"


@dataclass(frozen=True)
class HeadCheckpoint:
    """An open checkpoint. `files`: by tensor."""

    path: Path
    config: Mapping[str, object]
    files: Mapping[str, SafetensorsFile]

    @property
    def names(self) -> list[str]:
        return list(self.files)

    def fail(self, problem: str) -> ModelFileError:
        """Returns an error about this checkpoint."""
        return ModelFileError(f"{self.path.name}: {problem}")

    def shape(self, name: str) -> tuple[int, ...]:
        return self._info(name).shape

    def demand(self, name: str, *shape: int) -> None:
        """Raises ModelFileError unless the tensor is there and has this shape."""
        if self.shape(name) != shape:
            raise self.fail(f"tensor {quote(name)} has shape {list(self.shape(name))}, expected {list(shape)}")

    def _info(self, name: str) -> TensorInfo:
        if name not in self.files:
            raise self.fail(f"tensor {quote(name)} is missing")
        return self.files[name].tensors[name]

    def values(self, name: str) -> F32:
        """Returns a tensor of floats, decoded."""
        info, enc = self._info(name), encoding(self._info(name).encoding)
        if not enc.is_float:
            raise self.fail(f"tensor {quote(name)} is {info.encoding}; a drafter's tensors must be floats")
        k = info.shape[-1]
        values: F32 = decode(enc, self.files[name].raw(name).reshape(-1, enc.row_bytes(k)), k)
        if not np.isfinite(values).all():
            raise self.fail(f"tensor {quote(name)} has a value that is not finite")
        return values.reshape(info.shape)

    def integers(self, name: str, dtypes: Mapping[str, str]) -> NDArray[np.int64]:
        """Returns a tensor of integers; `dtypes`: NumPy's name of each type that it may have."""
        info = self._info(name)
        if info.encoding not in dtypes:
            raise self.fail(f"tensor {quote(name)} is {info.encoding}, expected {' or '.join(dtypes)}")
        return self.files[name].raw(name).view(dtypes[info.encoding]).astype(np.int64)

    def matrix(self, backend: Backend, name: str, n: int, k: int, bias: F32 | None = None) -> Matrix:
        """Packs a matrix of `n` outputs in its stored encoding."""
        self.demand(name, n, k)
        info = self._info(name)
        self.values(name)  # all are finite
        return backend.matrix(encoding(info.encoding), self.files[name].raw(name), n, k, bias=bias)

    def vector(self, backend: Backend, name: str, size: int) -> Vector:
        self.demand(name, size)
        return backend.vector(self.values(name))

    def close(self) -> None:
        for file in set(self.files.values()):
            file.close()


def open_heads(path: Path) -> HeadCheckpoint:
    """Opens the checkpoint in a directory. Raises ModelFileError if it is none, or if its tensors are pickled: reading
    such a file may run any program."""
    if not (path / "config.json").exists():
        raise ModelFileError(f"{path}: no config.json, so it is no drafter's directory")
    found = sorted(path.glob("*.safetensors"))
    if not found:
        pickled = next((p.name for p in sorted(path.iterdir()) if p.suffix in PICKLED), None)
        if pickled is not None:
            raise ModelFileError(f"{path.name}/{pickled} is pickled, which may run any program: convert it by "
                                 f"`{CONVERTER}`")
        raise ModelFileError(f"{path}: no .safetensors file")
    files: dict[str, SafetensorsFile] = {}
    for each in found:
        file = SafetensorsFile(each)
        files |= dict.fromkeys(file.tensors, file)
    return HeadCheckpoint(path, read_json(path / "config.json"), files)
