"""Cohere2 (Command R7B, Command A): attention and feed-forward in parallel; three layers of four have a window and
rope over adjacent pairs, the fourth has full attention and no positional encoding (NoPE)."""

from __future__ import annotations

from drut.errors import ModelFileError
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "cohere2", "Command R7B, Command A"
HF_ARCHITECTURES: tuple[str, ...] = ("Cohere2ForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("cohere2",)

DEFAULTS: Metadata = {"sliding_window": 4096, "logit_scale": 0.0625, "tie_word_embeddings": True}
KNOWN = ("attention_bias", "sliding_window", "layer_types", "logit_scale")


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, KNOWN, DEFAULTS)
    every = optional(config, "sliding_window_pattern", int, path, 4)
    if every < 1:
        raise ModelFileError(f"{path}: sliding_window_pattern is {every}")
    kinds, windows = hf.layer_windows(config, s, NAME, path, lambda layer: (layer + 1) % every != 0)
    rope = hf_rope.rope(config, s, NAME, path)
    bias, act = optional(config, "attention_bias", bool, path, False), hf.activation(config, NAME, path)
    layers = [_layer(s, rope if kind == "sliding_attention" else None, window, act, bias)
              for kind, window in zip(kinds, windows, strict=True)]
    eps = optional(config, "layer_norm_eps", float, path, 1e-5)
    scale = optional(config, "logit_scale", float, path, 1.0)
    return hf.spec(s, NAME, layers, eps, path, norm="layer", logit_scale=scale)


def _layer(s: hf.Sizes, rope: Rope | None, window: int, act: str, bias: bool) -> LayerSpec:
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                           softmax_scale=hf.inverse_root(s.head_dim), qkv_bias=bias, o_bias=bias, window=window)
    return LayerSpec(mixer, GatedFfn(s.ffn, act), parallel=True)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME, known=("logit_scale",))
    keys.need("attention.sliding_window", int)  # required, because layers with a window are the layers with rope
    rope, windowed = gguf.rope(keys, s, source), gguf.windowed(keys, s, 4)
    bias = "blk.0.attn_q.bias" in source.tensors
    layers = [_layer(s, rope if windowed[i] else None, window, "silu", bias)
              for i, window in enumerate(gguf.windows(keys, s, windowed.__getitem__))]
    return hf.spec(s, NAME, layers, keys.need("attention.layer_norm_epsilon", float), path, norm="layer",
                   logit_scale=keys.need("logit_scale", float))


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.interleaved(spec, names.hf_table(spec))


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file; its rows are in the order of a checkpoint."""
    return names.gguf_table(spec, pairs=True)
