"""FP8 (E4M3) weights with a scale for the tensor, for each row, or for each block of rows and columns.

A scale multiplies, in spite of the name `weight_scale_inv`. Scales of activations are not used: activations stay
float32 here, which is closer to the model before quantization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from drut.errors import UnsupportedError
from drut.formats.encoding import planes
from drut.formats.planes import U8, join
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import require_list
from drut.model.weights.quantized.recipe import SCALE_TYPES, Array, Parts, QuantizationRecipe

SCALES = ("weight_scale_inv", "weight_scale")


def recipes(parts: Parts, config: Mapping[str, object]) -> Iterator[QuantizationRecipe]:
    """Yields a recipe for each FP8 matrix `X.weight` with its scale."""
    block = None
    if config.get("weight_block_size") is not None:
        block = tuple(require_list(config, "weight_block_size", int, f"{parts.where}: quantization_config"))
    yield from fp8_recipes(parts, block)


def fp8_recipes(parts: Parts, block: tuple[int, ...] | None) -> Iterator[QuantizationRecipe]:
    """Does what `recipes` does; `block`: the (rows, columns) of one scale."""
    for name in parts.names(".weight"):
        dtype = parts.source.tensors[f"{name}.weight"].encoding
        if dtype == "F8_E4M3":
            yield _recipe(parts, name, block)
        elif dtype.startswith("F8_"):
            raise UnsupportedError(f"{parts.where}: tensor {quote(name + '.weight')}: {dtype} is not supported "
                                   "(supported: F8_E4M3)")


def _recipe(parts: Parts, name: str, block: tuple[int, ...] | None) -> QuantizationRecipe:
    n, k = parts.matrix(f"{name}.weight", "F8_E4M3").shape
    scale_name = next((f"{name}.{s}" for s in SCALES if parts.has(f"{name}.{s}")), f"{name}.weight_scale")
    scale = parts.info(scale_name, *SCALE_TYPES)
    rows_each, group = _spread(parts, scale_name, scale.shape, n, k, block)
    enc = planes("fp8", group, SCALE_TYPES[scale.encoding])
    stored = (f"{name}.weight", scale_name)
    return QuantizationRecipe(stored[0], (n, k), enc, stored, _rows(parts, *stored, n, rows_each))


def _spread(parts: Parts, name: str, shape: tuple[int, ...], n: int, k: int,
            block: tuple[int, ...] | None) -> tuple[int, int]:
    """Returns the number of rows of a row of scales, and the number of columns of a scale; 0 for the whole row."""
    if all(dim == 1 for dim in shape):
        return n, 0
    if shape in ((n,), (n, 1)):
        return 1, 0
    sound = block is not None and len(block) == 2 and min(block) > 0
    if block is not None and sound and shape == (-(-n // block[0]), -(-k // block[1])):
        return block[0], block[1]
    parts.fail(name, f"has shape {list(shape)}, which is neither one scale, nor one for each of {n} rows, nor one for "
               "each block of quantization_config")


def _rows(parts: Parts, codes: str, scales: str, n: int, rows_each: int) -> Callable[[], U8]:
    def rows() -> U8:
        stored: Array = parts.read(scales)
        stored = stored.reshape(1, 1) if stored.size == 1 else stored.reshape(len(stored), -1)
        return join(np.repeat(stored, rows_each, axis=0)[:n], parts.read(codes))

    return rows
