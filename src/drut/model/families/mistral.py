"""Mistral (a window on all layers, or on none), Ministral (on some) and Ministral 3 (queries that grow with their
position)."""

from __future__ import annotations

from collections.abc import Sequence

from drut.model.families import gguf, hf, llama, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.rope import positive
from drut.model.spec import AttentionMixer, GatedFfn, LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional, require
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "mistral", "Mistral, Ministral, Ministral 3"
HF_ARCHITECTURES: tuple[str, ...] = ("MistralForCausalLM", "MinistralForCausalLM", "Ministral3ForCausalLM",
                                     "Mistral3ForConditionalGeneration")
GGUF_ARCHITECTURES: tuple[str, ...] = ("mistral3",)  # older files call themselves llama
gguf_table = llama.gguf_table

DEFAULTS: Metadata = {"sliding_window": 4096}
DEFAULTS_3: Metadata = {"head_dim": 128}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """The spec of a `config.json`. Errors name the key."""
    is_3 = config.get("model_type") == "ministral3"
    config, s = hf.open_config(config, NAME, path, ("sliding_window", "layer_types"), DEFAULTS_3 if is_3 else DEFAULTS)
    table = hf.rope_table(config, path)
    amount = optional(table, "llama_4_scaling_beta", float, path, 0.0)
    growth = None
    if amount:
        positive(table, "original_max_position_embeddings", path)
        growth = amount, require(table, "original_max_position_embeddings", int, path)
    ffn = GatedFfn(s.ffn, hf.activation(config, NAME, path))
    layers = _layers(s, hf.rope(table, s, path), ffn, hf.windows(config, s, NAME, path), growth)
    return hf.spec(s, NAME, layers, hf.rms_eps(config, path, 1e-5 if is_3 else 1e-6), path)


def _layers(s: hf.Sizes, rope: Rope, ffn: GatedFfn, windows: Sequence[int],
            growth: tuple[float, int] | None) -> list[LayerSpec]:
    scale = hf.inverse_root(s.head_dim)
    return [LayerSpec(AttentionMixer(s.heads, s.kv_heads, s.head_dim, rope, scale, window=window, growth=growth), ffn)
            for window in windows]


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """The spec of a GGUF file. Errors name the key."""
    keys = gguf.Keys(metadata, path)
    s = gguf.sizes(keys, source, NAME)
    amount, growth = keys.get("attention.temperature_scale", float, 0.0), None
    if amount:
        growth = amount, keys.need("rope.scaling.original_context_length", int)
    layers = _layers(s, gguf.rope(keys, s, source), GatedFfn(s.ffn), gguf.windows(keys, s, lambda layer: True), growth)
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    return names.hf_table(spec)
