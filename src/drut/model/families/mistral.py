"""Mistral (a window on all layers, or on none), Ministral (on some) and Ministral 3 (queries scaled by their
position)."""

from __future__ import annotations

from collections.abc import Sequence

from drut.model.families import gguf, hf, hf_rope, llama, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.rope import positive
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import require
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "mistral", "Mistral, Ministral, Ministral 3"
HF_ARCHITECTURES: tuple[str, ...] = ("MistralForCausalLM", "MinistralForCausalLM", "Ministral3ForCausalLM",
                                     "Mistral3ForConditionalGeneration")
GGUF_ARCHITECTURES: tuple[str, ...] = ("mistral3",)  # older files call themselves llama
gguf_table = llama.gguf_table

DEFAULTS: Metadata = {"sliding_window": 4096, "num_key_value_heads": 8}
DEFAULTS_3: Metadata = {"head_dim": 128, "num_key_value_heads": 8}
ROPE_3: Metadata = {"type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
                    "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0,
                    "llama_4_scaling_beta": 0.1}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    is_3 = config.get("model_type") == "ministral3"
    config, s = hf.open_config(config, NAME, path, ("sliding_window", "layer_types"), DEFAULTS_3 if is_3 else DEFAULTS)
    table = hf_rope.table(config, path, ROPE_3 if is_3 else hf_rope.NOTHING)
    query_scaling = None
    if is_3:
        positive(table, "original_max_position_embeddings", path)
        query_scaling = (require(table, "llama_4_scaling_beta", float, path),
                  require(table, "original_max_position_embeddings", int, path))
    ffn = GatedFfn(s.ffn, hf.activation(config, NAME, path))
    layers = _layers(s, hf_rope.from_table(table, s, NAME, path), ffn, _windows(config, s, path), query_scaling)
    return hf.spec(s, NAME, layers, hf.rms_eps(config, path, 1e-5 if is_3 else 1e-6), path)


def _windows(config: Metadata, s: hf.Sizes, path: str) -> list[int]:
    """Returns the window of each layer. In Ministral, and Mistral with `layer_types`, only some layers may have one."""
    if config.get("model_type") == "ministral3":
        return [hf.window(config, s, NAME, path)] * s.layers
    windowed = config.get("sliding_window") is not None
    return hf.layer_windows(config, s, NAME, path, lambda layer: windowed)[1]


def _layers(s: hf.Sizes, rope: Rope, ffn: GatedFfn, windows: Sequence[int],
            query_scaling: tuple[float, int] | None) -> list[LayerSpec]:
    scale = hf.inverse_root(s.head_dim)
    return [LayerSpec(AttentionMixer(s.heads, s.kv_heads, s.head_dim, rope, scale, window=window,
                                     query_scale_by_position=query_scaling), ffn) for window in windows]


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME, known=("attention.temperature_scale",))
    beta, query_scaling = keys.get("attention.temperature_scale", float, 0.0), None
    if beta:
        query_scaling = beta, keys.need("rope.scaling.original_context_length", int)
    windows = gguf.windows(keys, s, lambda layer: True)
    layers = _layers(s, gguf.rope(keys, s, source), GatedFfn(s.ffn), windows, query_scaling)
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec)
