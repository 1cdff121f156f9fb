"""MXFP4 as in gpt-oss: experts `X.weight`, (experts, outputs, inputs), as `X_blocks` and `X_scales`.

If a float checkpoint has a tensor `X`, its rows are inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drut.model.weights.quantized.fp4 import mxfp4
from drut.model.weights.quantized.recipe import Parts, QuantizationRecipe


def recipes(parts: Parts, config: Mapping[str, object]) -> Iterator[QuantizationRecipe]:
    """Yields a recipe for each `X_blocks`."""
    for name in dict.fromkeys(parts.names("_blocks") + parts.names("_scales")):
        yield mxfp4(parts, f"{name}.weight", f"{name}_blocks", f"{name}_scales")
