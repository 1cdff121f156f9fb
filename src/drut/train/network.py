"""A plain transformer in torch, as a function of a model spec and weights by role: the twin of the decoder's plan, with
gradients. Plain is what `model/convert` can write as a Hugging Face directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from drut.model.mixers.attention import AttentionMixer
from drut.model.roles import layer_role
from drut.model.spec import ModelSpec, Rope


class Rotation(NamedTuple):
    """Cosines and sines of positions 0 to length - 1, (length, rotated / 2)."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, rope: Rope, length: int) -> Rotation:
        angles = np.arange(length)[:, None] * np.array(rope.inv_freq)
        cos, sin = (torch.from_numpy((rope.scale * f(angles)).astype(np.float32)) for f in (np.cos, np.sin))
        return cls(cos, sin)

    def rotated(self, x: Tensor) -> Tensor:
        """Returns `x` (.., length, head size) with its pairs, which are half the rotated part apart, turned."""
        half = self.cos.shape[1]
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((a * self.cos - b * self.sin, b * self.cos + a * self.sin, rest), -1)


def hidden(spec: ModelSpec, weights: Mapping[str, Tensor], tokens: Tensor) -> Tensor:
    """Returns the normed output of the last layer, (sequences, length, hidden), of tokens (sequences, length).

    A sequence may be padded at its end: a row sees itself and earlier ones only.
    """
    x = functional.embedding(tokens, weights["embed"])
    mixer = spec.layers[0].mixer
    assert isinstance(mixer, AttentionMixer)
    assert mixer.rope is not None
    rope = Rotation.of(mixer.rope, tokens.shape[1])
    for i in range(len(spec.layers)):
        layer = _LayerWeights(weights, layer_role(i, ""))
        x = x + _attention(mixer, layer, rope, _normed(x, layer["attn_norm"], spec.norm_eps), spec.norm_eps)
        x = x + _feed_forward(layer, _normed(x, layer["ffn_norm"], spec.norm_eps))
    return _normed(x, weights["final_norm"], spec.norm_eps)


class _LayerWeights:
    """The weights of a layer by the short names of their roles."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        self._weights, self._prefix = weights, prefix

    def __getitem__(self, role: str) -> Tensor:
        return self._weights[self._prefix + role]

    def projected(self, x: Tensor, role: str) -> Tensor:
        return functional.linear(x, self[role], self._weights.get(f"{self._prefix}{role}_bias"))


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)


def _attention(mixer: AttentionMixer, layer: _LayerWeights, rope: Rotation, y: Tensor, eps: float) -> Tensor:
    def heads(role: str, count: int) -> Tensor:
        return layer.projected(y, role).unflatten(-1, (count, mixer.head_dim)).transpose(1, 2)

    q, k, v = heads("q", mixer.heads), heads("k", mixer.kv_heads), heads("v", mixer.kv_heads)
    if mixer.qk_norm:
        q, k = _normed(q, layer["q_norm"], eps), _normed(k, layer["k_norm"], eps)
    mixed = functional.scaled_dot_product_attention(rope.rotated(q), rope.rotated(k), v, is_causal=True,
                                                    scale=mixer.softmax_scale, enable_gqa=True)
    return layer.projected(mixed.transpose(1, 2).flatten(2), "o")


def _feed_forward(layer: _LayerWeights, z: Tensor) -> Tensor:
    return layer.projected(functional.silu(layer.projected(z, "gate")) * layer.projected(z, "up"), "down")
