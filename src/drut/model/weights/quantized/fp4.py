"""FP4 (E2M1) weights: NVFP4 (E4M3 scales of 16 elements times a float) and MXFP4 (powers of two for 32 elements)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from drut.formats.encoding import NVFP4, encoding
from drut.formats.planes import U8, join, pairs
from drut.model.weights.quantized.recipe import Parts, QuantizationRecipe


def nvfp4(parts: Parts, name: str, codes: str, whole: str, *, divides: bool) -> QuantizationRecipe:
    """Returns the recipe of layer `name`: `codes` U8 (n, k/2), its `weight_scale` (n, k/16) and `whole`, the tensor's
    divisor or factor."""
    n, half = parts.matrix(codes, "U8").shape
    fine = f"{name}.weight_scale"
    parts.expect(fine, (n, half // 8), "F8_E4M3")
    shape = parts.info(whole, "F32").shape
    parts.expect(whole, (1,) * len(shape), "F32")

    def rows() -> U8:
        with np.errstate(divide="ignore"):
            scale = parts.read(whole).reshape(1, 1)
            scale = np.float32(1) / scale if divides else scale
        return join(np.repeat(scale, n, axis=0), parts.read(fine), parts.read(codes))

    return QuantizationRecipe(f"{name}.weight", (n, 2 * half), NVFP4, (codes, fine, whole), rows)


def mxfp4(parts: Parts, weight: str, codes: str, scales: str) -> QuantizationRecipe:
    """Returns the recipe of `weight`: `codes` U8 (.., n, k/2) or (.., n, k/32, 16) and `scales` U8 (.., n, k/32),
    E8M0."""
    shape = parts.info(scales, "U8", "F8_E8M0").shape
    k = 32 * shape[-1] if shape else 0
    stored = parts.info(codes, "U8")
    parts.expect(codes, (*shape, 16) if len(stored.shape) > len(shape) else (*shape[:-1], k // 2), "U8")
    return QuantizationRecipe(weight, (*shape[:-1], k), encoding("MXFP4"), (codes, scales),
                              _blocks(parts, codes, scales))


def _blocks(parts: Parts, codes: str, scales: str) -> Callable[[], U8]:
    """Returns a function that makes GGUF's blocks: the scale, then elements 0..15 in the low and 16..31 in the high
    halves of bytes."""
    def rows() -> U8:
        exponents = parts.source.raw(scales).reshape(-1, 1)
        elements = pairs(parts.source.raw(codes).reshape(-1, 16))
        return np.concatenate([exponents, elements[:, :16] | elements[:, 16:] << 4], axis=1)

    return rows
