"""Starcoder2: LayerNorm and biases everywhere, a feed-forward without a gate."""

from __future__ import annotations

from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import PlainFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.metadata import optional
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "starcoder2", "StarCoder2"
HF_ARCHITECTURES: tuple[str, ...] = ("Starcoder2ForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("starcoder2",)

DEFAULTS: Metadata = {"num_key_value_heads": 2, "tie_word_embeddings": True}
HF_NAMES = {"up": "mlp.c_fc.weight", "down": "mlp.c_proj.weight"}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, ("use_bias", "sliding_window", "layer_types"), DEFAULTS)
    bias = optional(config, "use_bias", bool, path, True)
    act = hf.activation(config, NAME, path, default="gelu_pytorch_tanh", supported=("gelu_tanh", "gelu_erf"))
    rope, scale = hf_rope.rope(config, s, NAME, path), hf.inverse_root(s.head_dim)
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope, softmax_scale=scale,
                           qkv_bias=bias, o_bias=bias, window=hf.window(config, s, NAME, path))
    eps = optional(config, "norm_epsilon", float, path, 1e-5)
    layers = [LayerSpec(mixer, PlainFfn(s.ffn, act, bias))] * s.layers
    return hf.spec(s, NAME, layers, eps, path, norm="layer", norm_bias=True)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME)
    gguf.refuse_window(keys, s, NAME)
    q, o, ffn = (f"blk.0.{part}.bias" in source.tensors for part in ("attn_q", "attn_output", "ffn_up"))
    rope, scale = gguf.rope(keys, s, source), hf.inverse_root(s.head_dim)
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope, softmax_scale=scale,
                           qkv_bias=q, o_bias=o)
    layer = LayerSpec(mixer, PlainFfn(s.ffn, "gelu_tanh", ffn))
    eps = keys.need("attention.layer_norm_epsilon", float)
    return hf.spec(s, NAME, [layer] * s.layers, eps, path, norm="layer", norm_bias=True)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec, HF_NAMES)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file; its rows are in the order of a checkpoint."""
    return names.gguf_table(spec)
