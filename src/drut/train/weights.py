"""The weights of a model as float32 arrays by role, and back: a Hugging Face directory of such arrays."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from drut.errors import UnsupportedError
from drut.formats.planes import F32, U8
from drut.model.convert import convert
from drut.model.convert.keys import ARCHITECTURES, hf_config
from drut.model.families import family_of_hf
from drut.model.families.table import Stored
from drut.model.model import ModelFiles
from drut.model.roles import expected_shapes
from drut.model.spec import ModelSpec
from drut.model.weights.source import TensorInfo

ENCODING, DTYPE = "BF16", "bfloat16"  # of the written matrices


def architecture_of(files: ModelFiles) -> str:
    """Returns the Hugging Face architecture of a plain model. Raises UnsupportedError for others, which the torch
    network does not compute."""
    try:
        return str(hf_config(files, DTYPE)["architectures"][0])
    except UnsupportedError:
        raise UnsupportedError(f"{files.path.name}: a drafter can be trained for plain {', '.join(ARCHITECTURES)} "
                               "only") from None


def values_of(files: ModelFiles, role: str) -> F32:
    """Returns the decoded values of a role in canonical order, a copy."""
    shape, stored, source = expected_shapes(files.spec)[role], files.table[role], files.decoded().source
    values = np.array(source.raw(stored.name)).view(np.float32).reshape(-1, *shape[1:])
    values = values[stored.first : stored.first + shape[0]]
    order = stored.row_order(shape[0])
    source.release(stored.name)
    return (values if order is None else values[order]) + np.float32(stored.offset)


class ArraySource:
    """Arrays as a weight file: a TensorSource of float32 tensors by name."""

    def __init__(self, arrays: Mapping[str, F32]) -> None:
        self._arrays = {name: np.ascontiguousarray(a, np.float32) for name, a in arrays.items()}
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: TensorInfo(name, a.shape, "F32", 0, a.nbytes) for name, a in self._arrays.items()})

    def raw(self, name: str) -> U8:
        return self._arrays[name].view(np.uint8).reshape(-1)

    def columns(self, name: str) -> NDArray[np.int32] | None:
        return None

    def release(self, name: str) -> None:
        """Does nothing: the arrays are in memory."""

    def close(self) -> None:
        """Does nothing."""


def write_model(files: ModelFiles, spec: ModelSpec, values: Mapping[str, F32], out: Path) -> None:
    """Writes a model of `spec`, with `values` by role and the tokenizer of `files`, into the folder `out`.

    Its files replace earlier ones one by one, the weights first.
    """
    table = {role: Stored(stored.name) for role, stored in family_of_hf(architecture_of(files)).hf_table(spec).items()}
    source = ArraySource({stored.name: values[role] for role, stored in table.items()})
    with tempfile.TemporaryDirectory(prefix=".model.", dir=out) as folder:
        made = Path(folder) / out.name
        convert(replace(files, spec=spec, source=source, table=table), made, ENCODING)
        for path in sorted(made.iterdir(), key=lambda path: path.suffix != ".safetensors"):
            os.replace(path, out / path.name)
