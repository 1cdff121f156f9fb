"""GLM-4 (0414): norms before and after, gate and up in one tensor, rope over adjacent pairs of half of each head."""

from __future__ import annotations

from drut.errors import UnsupportedError
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "glm", "GLM-4-0414"
HF_ARCHITECTURES: tuple[str, ...] = ("Glm4ForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("glm4",)

DEFAULTS: Metadata = {"attention_bias": True, "head_dim": 128, "num_key_value_heads": 2}
HF_NAMES = {"attn_post_norm": "post_self_attn_layernorm.weight", "ffn_post_norm": "post_mlp_layernorm.weight"}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, ("attention_bias",), DEFAULTS)
    rope = hf_rope.rope(config, s, NAME, path, partial=0.5)
    bias, act = optional(config, "attention_bias", bool, path, True), hf.activation(config, NAME, path)
    return _spec(s, rope, bias, act, hf.rms_eps(config, path, 1.5625e-7), path)


def _spec(s: hf.Sizes, rope: Rope, bias: bool, act: str, eps: float, path: str) -> ModelSpec:
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                           softmax_scale=hf.inverse_root(s.head_dim), qkv_bias=bias)
    return hf.spec(s, NAME, [LayerSpec(mixer, GatedFfn(s.ffn, act), post_norm=True)] * s.layers, eps, path)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME)
    gguf.refuse_window(keys, s, NAME)
    if f"{keys.architecture}.rope.dimension_sections" in metadata:
        raise UnsupportedError(f"{path}: {keys.architecture}.rope.dimension_sections is not supported by family {NAME}")
    bias = "blk.0.attn_q.bias" in source.tensors
    return _spec(s, gguf.rope(keys, s, source), bias, "silu", gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    table = names.interleaved(spec, names.hf_table(spec, HF_NAMES))
    return names.fused(spec, table, "model.layers.{}.mlp.gate_up_proj.weight", ("gate", "up"))


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file; its rows are in the order of a checkpoint."""
    return names.fused(spec, names.gguf_table(spec, pairs=True), "blk.{}.ffn_up.weight", ("gate", "up"))
