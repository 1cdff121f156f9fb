"""Smoothing: moves the range of activations into weights before both are rounded to int8 (SmoothQuant, Xiao et al.
2022).

Input k of a matrix is divided by s[k] and column k multiplied by it. What makes the input is divided instead of the
input itself: norms before q, k, v, gate and up; rows of v before o; rows of up before down. So the model stays the
same function, in the same tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from drut.kernels.ops import F32
from drut.model.convert.calibration import Calibration
from drut.model.convert.rows import canonical
from drut.model.mixers.attention import AttentionMixer
from drut.model.model import ModelFiles
from drut.model.roles import expected_shapes, layer_role

_FLOOR = 2.0**-16  # the smallest RMS that counts, relative to the largest: inputs that are always zero are finite


class Fold(NamedTuple):
    """Factors of the outputs (rows) and of the inputs (columns) of a role; a vector has outputs only."""

    outputs: F32 | None = None
    inputs: F32 | None = None

    def of(self, values: F32) -> F32:
        """Returns the weights times the factors."""
        if self.inputs is not None:
            values = values * self.inputs
        if self.outputs is not None:
            values = (values.T * self.outputs).T
        return values


def smoothing(files: ModelFiles, ids: Sequence[int]) -> dict[str, Fold]:
    """Returns the folds of all roles that have one, for activations like those of the tokens `ids`.

    The model must be one of `keys.ARCHITECTURES`: pre-normed layers of attention and a gated feed-forward.
    """
    spec, shapes = files.spec, expected_shapes(files.spec)
    sample = Calibration(spec, canonical(files, "embed", shapes["embed"]), ids[: spec.context])
    folds: dict[str, Fold] = {}
    for i, layer in enumerate(spec.layers):
        prefix = layer_role(i, "")
        values = {role.removeprefix(prefix): canonical(files, role, shape) for role, shape in shapes.items()
                  if role.startswith(prefix)}
        assert isinstance(layer.mixer, AttentionMixer)
        found = layer_folds(layer.mixer, values, sample.layer(i, values))
        folds |= {layer_role(i, role): fold for role, fold in found.items()}
    return folds


def layer_folds(mixer: AttentionMixer, values: Mapping[str, F32], rms: Mapping[str, F32]) -> dict[str, Fold]:
    """Returns the folds of a layer with weights `values`, whose matrices multiply rows of `rms` (inputs,), by role."""
    attn = balance(rms["q"], _rms(*(values[role] for role in "qkv")))
    ffn = balance(rms["gate"], _rms(values["gate"], values["up"]))
    down = balance(rms["down"], _rms(values["down"]))
    heads = mixer.kv_heads, mixer.heads // mixer.kv_heads, mixer.head_dim
    value = balance(*(np.sqrt((x.reshape(heads) ** 2).mean(axis=1)).ravel() for x in (rms["o"], _rms(values["o"]))))
    shared = np.broadcast_to(value.reshape(heads[0], 1, heads[2]), heads).ravel()  # by the heads of a group
    folds = {"attn_norm": Fold(np.reciprocal(attn)), "q": Fold(None, attn), "k": Fold(None, attn),
             "v": Fold(np.reciprocal(value), attn), "o": Fold(None, shared), "ffn_norm": Fold(np.reciprocal(ffn)),
             "gate": Fold(None, ffn), "up": Fold(np.reciprocal(down), ffn), "down": Fold(None, down)}
    return folds | ({"v_bias": Fold(np.reciprocal(value))} if mixer.qkv_bias else {})


def _rms(*matrices: F32) -> F32:
    """Returns the root mean square of each column, over the rows of all `matrices`."""
    squares = sum((m * m).sum(axis=0, dtype=np.float64) for m in matrices)
    return np.asarray(np.sqrt(squares / sum(len(m) for m in matrices)), np.float32)


def balance(inputs: F32, weights: F32) -> F32:
    """Returns s, of geometric mean 1: inputs / s and weights * s have RMS of equal shape.

    This minimizes the error of the product if the rounding errors are equal for all inputs, and for all weights.
    """
    if not (inputs.any() and weights.any()):
        return np.ones_like(inputs)
    logs = [np.log2(np.maximum(x, x.max() * _FLOOR).astype(np.float64)) for x in (inputs, weights)]
    s = (logs[0] - logs[1]) / 2
    return np.asarray(np.exp2(s - s.mean()), np.float32)
