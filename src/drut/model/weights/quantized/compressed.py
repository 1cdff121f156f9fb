"""compressed-tensors, the format of LLM Compressor: integers, packed or not, FP8, NVFP4 and MXFP4.

The tensors determine which layers are quantized, and how; `config_groups` must agree. Settings and scales of
activations are not used: integer weights have int8 activations in groups of 32 or 64, finer than any scheme that a file
can request, and float weights have float activations (FP4: int8, more precise than the file requests).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError, UnsupportedError
from drut.formats.encoding import planes
from drut.formats.planes import U8, join
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require
from drut.model.weights.quantized.fp4 import mxfp4, nvfp4
from drut.model.weights.quantized.fp8 import fp8_recipes
from drut.model.weights.quantized.groups import column_order, group_count, packed, unpacked
from drut.model.weights.quantized.recipe import SCALE_TYPES, Array, Parts, QuantizationRecipe

FORMATS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "nvfp4-pack-quantized",
           "mxfp4-pack-quantized", "mixed-precision")


@dataclass(frozen=True)
class Scheme:
    """The weight settings of one of `config_groups`."""

    bits: int
    kind: str  # int or float
    symmetric: bool
    strategy: str
    group: int | None
    block: tuple[int, ...] | None


def recipes(parts: Parts, config: Mapping[str, object]) -> Iterator[QuantizationRecipe]:
    """Yields a recipe for each quantized layer. An error names the key or the tensor."""
    where = f"{parts.where}: quantization_config"
    _refuse(config, where)
    schemes = list(_schemes(config, where))
    integers = [s for s in schemes if s.kind == "int"]
    for name in parts.names(".weight_packed"):
        codes = f"{name}.weight_packed"
        if parts.info(codes, "I32", "U8").encoding == "I32":
            yield _packed_integers(parts, name, integers)
        elif parts.has(f"{name}.weight_global_scale"):
            yield nvfp4(parts, name, codes, f"{name}.weight_global_scale", divides=True)
        else:
            yield mxfp4(parts, f"{name}.weight", codes, f"{name}.weight_scale")
    for name in parts.names(".weight"):
        if parts.source.tensors[f"{name}.weight"].encoding == "I8":
            yield _plain_integers(parts, name, integers)
    yield from fp8_recipes(parts, next((s.block for s in schemes if s.block), None))


def _refuse(config: Mapping[str, object], where: str) -> None:
    form = optional(config, "format", str, where, "dense")
    if form not in (*FORMATS, "dense"):
        raise UnsupportedError(f"{where}: format {quote(form)} is not supported (supported: {', '.join(FORMATS)})")
    sparsity = config.get("sparsity_config")
    if isinstance(sparsity, Mapping) and sparsity.get("format", "dense") != "dense":
        raise UnsupportedError(f"{where}: sparsity_config: format {quote(str(sparsity['format']))} is not supported")
    transforms = config.get("transform_config")
    if isinstance(transforms, Mapping) and transforms.get("config_groups"):
        raise UnsupportedError(f"{where}: transform_config (rotated activations) is not supported")


def _schemes(config: Mapping[str, object], where: str) -> Iterator[Scheme]:
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise ModelFileError(f"{where}: config_groups is missing or empty")
    for key, value in groups.items():
        weights = value.get("weights") if isinstance(value, Mapping) else None
        here = f"{where}: config_groups: {key}"
        if not isinstance(weights, Mapping):
            raise ModelFileError(f"{here}: weights must be an object")
        block = weights.get("block_structure")
        yield Scheme(bits=require(weights, "num_bits", int, here), kind=optional(weights, "type", str, here, "int"),
                     symmetric=optional(weights, "symmetric", bool, here, True),
                     strategy=optional(weights, "strategy", str, here, "tensor"),
                     group=optional(weights, "group_size", int, here),
                     block=tuple(block) if isinstance(block, list) else None)


def _agree(parts: Parts, name: str, schemes: list[Scheme], bits: int, zeros: bool, groups: int, k: int) -> None:
    """Raises ModelFileError unless one of the schemes describes the stored tensors."""
    for s in schemes:
        size = s.group if s.group and s.group > 0 else k
        if s.bits == bits and s.symmetric != zeros and (k // size if s.strategy == "group" else 1) == groups:
            return
    parts.fail(name, f"has {bits} bits and {groups} groups in a row of {k}, {'with' if zeros else 'without'} zero "
               "points: no group of quantization_config matches")


@dataclass(frozen=True)
class _Integers:
    """An integer layer as its tensors describe it."""

    parts: Parts
    name: str
    codes: str
    bits: int
    n: int
    k: int
    groups: int

    def part(self, suffix: str) -> str:
        return f"{self.name}.{suffix}"

    def recipe(self, rows: Callable[[], U8], columns: Callable[[], NDArray[np.int32] | None]) -> QuantizationRecipe:
        scale = self.parts.source.tensors[self.part("weight_scale")].encoding
        enc = planes("int4" if self.bits == 4 else "int8", 0 if self.groups == 1 else self.k // self.groups,
                     SCALE_TYPES[scale], zeros=self.parts.has(self.part("weight_zero_point")))
        names = [self.codes, *map(self.part, ("weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape"))]
        return QuantizationRecipe(name=self.part("weight"), shape=(self.n, self.k), encoding=enc,
                                  parts=tuple(filter(self.parts.has, names)), rows=rows, columns=columns)

    def by_row(self, array: Array) -> Array:
        """Returns (n, groups) from one number for all, one for each row, or all of them."""
        return np.broadcast_to(array.reshape(-1, self.groups), (self.n, self.groups))

    def columns(self) -> NDArray[np.int32] | None:
        name = self.part("weight_g_idx")
        if not self.parts.has(name):
            return None
        self.parts.expect(name, (self.k,), "I32")
        return column_order(self.parts, name, self.k, self.groups)


def _layer(parts: Parts, name: str, codes: str, bits: int, n: int, k: int, schemes: list[Scheme]) -> _Integers:
    """Returns the layer after checking that the shape of its scales fits and a scheme agrees."""
    scale = parts.info(f"{name}.weight_scale", *SCALE_TYPES)
    whole = all(dim == 1 for dim in scale.shape)
    groups = 1 if whole or len(scale.shape) < 2 else scale.shape[1]
    if not (whole or scale.shape in ((n,), (n, groups))) or not groups or k % groups:
        parts.fail(scale.name, f"has shape {list(scale.shape)}, which does not fit {n} rows of {k}")
    group_count(parts, codes, k, k // groups)
    _agree(parts, codes, schemes, bits, parts.has(f"{name}.weight_zero_point"), groups, k)
    return _Integers(parts=parts, name=name, codes=codes, bits=bits, n=n, k=k, groups=groups)


def _packed_integers(parts: Parts, name: str, schemes: list[Scheme]) -> QuantizationRecipe:
    """Returns the recipe of `weight_packed` int32 (n, k * bits / 32), the low bits first; zero points are packed along
    n."""
    codes = f"{name}.weight_packed"
    n, words = parts.matrix(codes, "I32").shape
    parts.expect(f"{name}.weight_shape", (2,), "I64", "I32")
    rows, k = (int(x) for x in parts.read(f"{name}.weight_shape"))
    bits = next((b for b in (4, 8) if rows == n and k > 0 and k * b == 32 * words), 0)
    if not bits:
        parts.fail(codes, f"has shape {[n, words]}, which does not fit {rows} rows of {k} codes of 4 or 8 bits")
    layer = _layer(parts, name, codes, bits, n, k, schemes)
    zeros = layer.part("weight_zero_point")
    if parts.has(zeros):
        parts.expect(zeros, (-(-n * bits // 32), layer.groups), "I32")

    def whole() -> U8:
        stored: U8 = parts.read(codes).view(np.uint8)
        order = layer.columns()
        if order is not None:
            stored = packed(unpacked(stored, bits)[:, order], bits)
        planes_ = [layer.by_row(parts.read(layer.part("weight_scale")))]
        if parts.has(zeros):
            points = unpacked(parts.read(zeros).T, bits)[:, :n].T
            planes_.append((points.astype(np.int16) - (1 << bits - 1)).astype(np.int8))
        return join(*planes_, stored)

    return layer.recipe(whole, layer.columns)


def _plain_integers(parts: Parts, name: str, schemes: list[Scheme]) -> QuantizationRecipe:
    """Returns the recipe of `weight` int8 (n, k); codes and zero points are signed."""
    codes = f"{name}.weight"
    n, k = parts.matrix(codes, "I8").shape
    layer = _layer(parts, name, codes, 8, n, k, schemes)
    zeros = layer.part("weight_zero_point")
    if parts.has(zeros):
        parts.expect(zeros, parts.source.tensors[layer.part("weight_scale")].shape, "I8")

    def whole() -> U8:
        planes_ = [layer.by_row(parts.read(layer.part("weight_scale")))]
        if parts.has(zeros):
            planes_.append(layer.by_row(parts.read(zeros)))
        return join(*planes_, parts.read(codes).view(np.uint8) ^ np.uint8(128))

    return layer.recipe(whole, lambda: None)
