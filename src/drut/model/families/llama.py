"""Llama 2 and 3, and models with the same architecture: SmolLM2, and GGUF files of Mistral and Mixtral."""

from __future__ import annotations

from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.experts import gguf_ffn, with_experts
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.metadata import optional
from drut.model.weights.source import TensorSource

NAME, MIXTRAL, EXAMPLES = "llama", "mixtral", "Llama 2 and 3 (text), SmolLM2"
HF_ARCHITECTURES: tuple[str, ...] = ("LlamaForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("llama",)


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, ("attention_bias", "mlp_bias"))
    attention, ffn = (optional(config, key, bool, path, False) for key in ("attention_bias", "mlp_bias"))
    mixer = AttentionMixer(s.heads, s.kv_heads, s.head_dim, hf_rope.rope(config, s, NAME, path),
                           hf.inverse_root(s.head_dim), qkv_bias=attention, o_bias=attention)
    layer = LayerSpec(mixer, GatedFfn(s.ffn, hf.activation(config, NAME, path), ffn))
    return hf.spec(s, NAME, [layer] * s.layers, hf.rms_eps(config, path), path)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key. Biases are found by their tensors."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME, experts=True)
    windows = gguf.windows(keys, s, lambda layer: True)
    rope, scale = gguf.rope(keys, s, source), hf.inverse_root(s.head_dim)
    q, o, ffn = (f"blk.0.{part}.bias" in source.tensors for part in ("attn_q", "attn_output", "ffn_up"))
    layers = [LayerSpec(AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                                       softmax_scale=scale, qkv_bias=q, o_bias=o, window=window),
                        GatedFfn(s.ffn, bias=ffn)) for window in windows]
    if keys.get("expert_count", int, 0):
        spec = hf.spec(s, MIXTRAL, layers, gguf.rms_eps(keys), path)
        return with_experts(spec, gguf_ffn(keys, source), lambda layer: True, path)
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file, in which rope pairs are adjacent rows of q and k."""
    return names.gguf_table(spec, pairs=True)
