"""NVIDIA ModelOpt's exports: FP8 with a scale per tensor, and NVFP4. Scales of activations are not used (fp8.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drut.errors import UnsupportedError
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import require
from drut.model.weights.quantized.fp4 import nvfp4
from drut.model.weights.quantized.fp8 import fp8_recipes
from drut.model.weights.quantized.recipe import Parts, QuantizationRecipe


def recipes(parts: Parts, config: Mapping[str, object]) -> Iterator[QuantizationRecipe]:
    """Yields a recipe for each quantized layer."""
    algorithm = require(config, "quant_algo", str, parts.where)
    if algorithm == "FP8":
        yield from fp8_recipes(parts, None)
    elif algorithm == "NVFP4":
        for name in parts.names(".weight_scale_2"):
            yield nvfp4(parts, name, f"{name}.weight", f"{name}.weight_scale_2", divides=False)
    else:
        raise UnsupportedError(f"{parts.where}: quant_algo {quote(algorithm)} is not supported (supported: FP8, NVFP4)")
