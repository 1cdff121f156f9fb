"""Phi-3, 3.5 and 4 (q, k and v in one tensor, gate and up in another; some rotate a part of each head, some have
LongRoPE)."""

from __future__ import annotations

from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "phi", "Phi-3 mini and medium, Phi-3.5 mini, Phi-4, Phi-4 mini"
HF_ARCHITECTURES: tuple[str, ...] = ("Phi3ForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("phi3",)

DEFAULTS: Metadata = {"original_max_position_embeddings": 4096}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, ("sliding_window", "layer_types"), DEFAULTS)
    table = hf_rope.table(config, path)
    if table.get("rope_type", table.get("type")) in ("su", "yarn"):  # earlier names of the same
        table = {**table, "rope_type": "longrope"}
    rope, scale = hf_rope.from_table(table, s, NAME, path, partial=1.0), hf.inverse_root(s.head_dim)
    ffn = GatedFfn(s.ffn, hf.activation(config, NAME, path))
    mixer = AttentionMixer(s.heads, s.kv_heads, s.head_dim, rope, scale, window=hf.window(config, s, NAME, path))
    return hf.spec(s, NAME, [LayerSpec(mixer, ffn)] * s.layers, hf.rms_eps(config, path, 1e-5), path)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME)
    rope, scale = gguf.rope(keys, s, source), hf.inverse_root(s.head_dim)
    layers = [LayerSpec(AttentionMixer(s.heads, s.kv_heads, s.head_dim, rope, scale, window=window), GatedFfn(s.ffn))
              for window in gguf.windows(keys, s, lambda layer: True)]
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    table = names.fused(spec, names.hf_table(spec), "model.layers.{}.self_attn.qkv_proj.weight", ("q", "k", "v"))
    return names.fused(spec, table, "model.layers.{}.mlp.gate_up_proj.weight", ("gate", "up"))


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file."""
    table = names.fused(spec, names.gguf_table(spec), "blk.{}.attn_qkv.weight", ("q", "k", "v"))
    return names.fused(spec, table, "blk.{}.ffn_up.weight", ("gate", "up"))
