"""Shared by all formats: typed parts with checked shapes, and the source that has assembled weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError, UnsupportedError
from drut.formats.encoding import Encoding, ScaleType
from drut.formats.planes import U8
from drut.model.weights.mapping import quote
from drut.model.weights.source import TensorInfo, TensorSource

Array = NDArray[Any]
NUMPY = {"I32": "<i4", "I64": "<i8", "I8": "i1", "U8": "u1", "F8_E4M3": "u1", "F16": "<f2", "BF16": "<u2", "F32": "<f4"}
SCALE_TYPES: dict[str, ScaleType] = {"F16": "f16", "BF16": "bf16", "F32": "f32"}


class Parts:
    """The stored tensors of a checkpoint, checked on access. An error names `where` and the tensor."""

    def __init__(self, source: TensorSource, where: str) -> None:
        self.source, self.where = source, where

    def fail(self, name: str, what: str) -> NoReturn:
        """Raises ModelFileError about a tensor."""
        raise ModelFileError(f"{self.where}: tensor {quote(name)} {what}")

    def names(self, suffix: str) -> list[str]:
        """Returns the names of tensors that end with `suffix`, without it."""
        return [name.removesuffix(suffix) for name in self.source.tensors if name.endswith(suffix)]

    def has(self, name: str) -> bool:
        return name in self.source.tensors

    def info(self, name: str, *dtypes: str) -> TensorInfo:
        """Returns the tensor, which must have one of `dtypes`."""
        info = self.source.tensors.get(name)
        if info is None:
            self.fail(name, "is missing")
        if info.encoding not in dtypes:
            self.fail(name, f"is {info.encoding}, expected {' or '.join(dtypes)}")
        return info

    def matrix(self, name: str, *dtypes: str) -> TensorInfo:
        """Does what `info` does, and checks that the tensor has two dimensions, neither of them 0."""
        info = self.info(name, *dtypes)
        if len(info.shape) != 2 or 0 in info.shape:
            self.fail(name, f"has shape {list(info.shape)}; it must be a matrix")
        return info

    def expect(self, name: str, shape: tuple[int, ...], *dtypes: str, why: str = "") -> TensorInfo:
        """Does what `info` does, and checks that the tensor has exactly `shape`."""
        info = self.info(name, *dtypes)
        if info.shape != shape:
            self.fail(name, f"has shape {list(info.shape)}, expected {list(shape)}{why}")
        return info

    def read(self, name: str) -> Array:
        """Returns the tensor as a read-only array; BF16 and FP8 as their bits."""
        info = self.source.tensors[name]
        return self.source.raw(name).view(NUMPY[info.encoding]).reshape(info.shape)


@dataclass(frozen=True)
class QuantizationRecipe:
    """Assembles one weight: `rows` returns its bytes, (n, row bytes), and `columns` the order of its columns."""

    name: str
    shape: tuple[int, ...]
    encoding: Encoding
    parts: tuple[str, ...]  # the stored tensors that it is assembled from
    rows: Callable[[], U8]
    columns: Callable[[], NDArray[np.int32] | None] = lambda: None

    @property
    def nbytes(self) -> int:
        rows = 1
        for dim in self.shape[:-1]:
            rows *= dim
        return rows * self.encoding.row_bytes(self.shape[-1])


class QuantizedSource:
    """The source `base` with the parts of each recipe replaced by the assembled weight."""

    def __init__(self, base: TensorSource, recipes: Iterable[QuantizationRecipe], where: str) -> None:
        self._base, self._recipes = base, {recipe.name: recipe for recipe in recipes}
        used = {part for recipe in self._recipes.values() for part in recipe.parts}
        tensors = {name: info for name, info in base.tensors.items() if name not in used}
        for recipe in self._recipes.values():
            if recipe.name in tensors:
                raise ModelFileError(f"{where}: {quote(recipe.name)} is stored both quantized and not")
            if recipe.shape[-1] % recipe.encoding.block:
                raise UnsupportedError(f"{where}: tensor {quote(recipe.name)}: quantized rows of {recipe.shape[-1]} "
                                       f"are not supported (supported: multiples of {recipe.encoding.block})")
            offset = base.tensors[recipe.parts[0]].offset
            tensors[recipe.name] = TensorInfo(recipe.name, recipe.shape, recipe.encoding.name, offset, recipe.nbytes)
        self._tensors = MappingProxyType(tensors)

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Tensors by name; the offset of a quantized weight is the offset of its codes."""
        return self._tensors

    def raw(self, name: str) -> U8:
        """Returns the tensor's bytes; a quantized weight is assembled again in each call."""
        if name not in self._recipes:
            return self._base.raw(name)
        return self._recipes[name].rows().reshape(-1)

    def columns(self, name: str) -> NDArray[np.int32] | None:
        return self._recipes[name].columns() if name in self._recipes else self._base.columns(name)

    def release(self, name: str) -> None:
        for part in self._recipes[name].parts if name in self._recipes else (name,):
            self._base.release(part)

    def close(self) -> None:
        self._base.close()
