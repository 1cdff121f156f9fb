"""Writes W8A8 as LLM Compressor does: the format `int-quantized` of compressed-tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from drut.formats.encoding import W8A8
from drut.formats.planes import U8
from drut.model.convert.write import PendingTensor
from drut.model.weights.head import EMBED, HEAD

FORMAT = "int-quantized"
_SCALE_BYTES = 4


def compressed(tensors: Sequence[PendingTensor], tied_head: bool) -> list[PendingTensor]:
    """Returns the tensors of the format: W8A8 matrices as codes and scales, others as they are.

    A tied head with scales is stored twice: `transformers` takes the scales of a layer from tensors with that layer's
    name.
    """
    heads = [replace(t, name=HEAD) for t in tensors if tied_head and t.name == EMBED and t.dtype == W8A8.name]
    return [part for t in (*tensors, *heads) for part in (_parts(t) if t.dtype == W8A8.name else (t,))]


def _parts(tensor: PendingTensor) -> Iterator[PendingTensor]:
    """Yields the codes, then the scales, which are kept from making the codes."""
    n, k = tensor.shape
    kept: list[U8] = []

    def codes() -> U8:
        rows = tensor.make()
        kept.append(rows[:, :_SCALE_BYTES].copy())
        return rows[:, _SCALE_BYTES:] ^ np.uint8(128)

    yield PendingTensor(tensor.name, (n, k), "I8", n * k, codes)
    yield PendingTensor(f"{tensor.name}_scale", (n, 1), "F32", n * _SCALE_BYTES, kept.pop)


def settings(tensors: Iterable[PendingTensor]) -> dict[str, Any]:
    """Returns the `quantization_config` of tensors that `compressed` returned: layers that are not W8A8 are ignored."""
    dtypes = {HEAD: "", **{t.name: t.dtype for t in tensors if len(t.shape) == 2 and t.name.endswith(".weight")}}
    ignored = [name.removesuffix(".weight") for name, dtype in dtypes.items() if dtype != "I8" and name != EMBED]
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    activations = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
    group = {"format": FORMAT, "weights": weights}
    groups = {"group_0": group | {"targets": ["Linear"], "input_activations": activations}}
    if dtypes[EMBED] == "I8":
        groups["group_1"] = group | {"targets": ["Embedding"]}
    return {"quant_method": "compressed-tensors", "format": FORMAT, "quantization_status": "compressed",
            "config_groups": groups, "ignore": ignored}
