"""Qwen2 and 2.5 (q, k and v with biases) and Qwen3 (heads of q and k normed)."""

from __future__ import annotations

from collections.abc import Sequence

from drut.model.families import gguf, hf, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.spec import AttentionMixer, GatedFfn, LayerSpec, ModelSpec
from drut.model.weights.metadata import optional, require_list
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "qwen", "Qwen2, Qwen2.5, Qwen3 (dense)"
HF_ARCHITECTURES: tuple[str, ...] = ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("qwen2", "qwen3")

# What a config means by a key it leaves out.
DEFAULTS: Metadata = {"sliding_window": 4096, "max_window_layers": 28}
DEFAULTS_3: Metadata = {**DEFAULTS, "head_dim": 128}
KNOWN = ("sliding_window", "use_sliding_window", "layer_types")


def from_hf(config: Metadata, path: str, family: str = NAME, more: Sequence[str] = ()) -> ModelSpec:
    """The spec of a `config.json`; `family` knows `more` settings. Errors name the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Qwen3")
    known = (*KNOWN, "attention_bias") if is_3 else KNOWN
    config, s = hf.open_config(config, family, path, (*known, *more), DEFAULTS_3 if is_3 else DEFAULTS)
    bias = optional(config, "attention_bias", bool, path, False) if is_3 else False
    rope, scale = hf.rope(hf.rope_table(config, path), s, path), hf.inverse_root(s.head_dim)
    ffn = GatedFfn(s.ffn, hf.activation(config, family, path))
    layers = [LayerSpec(AttentionMixer(s.heads, s.kv_heads, s.head_dim, rope, scale, bias or not is_3, bias,
                                       "head" if is_3 else "", window), ffn) for window in _windows(config, s, path)]
    return hf.spec(s, family, layers, hf.rms_eps(config, path), path)


def _windows(config: Metadata, s: hf.Sizes, path: str) -> list[int]:
    """`layer_types` says which layers have a window; without it, if windows are used, those past the first
    `max_window_layers` do."""
    used = optional(config, "use_sliding_window", bool, path, False)
    full = optional(config, "max_window_layers", int, path, 0)
    if not used:
        config = {**config, "sliding_window": None}
    return hf.windows(config, s, NAME, path, lambda layer: layer >= full)


def from_gguf(metadata: Metadata, source: TensorSource, path: str, family: str = NAME) -> ModelSpec:
    """The spec of a GGUF file. Errors name the key."""
    keys = gguf.Keys(metadata, path)
    s, is_3 = gguf.sizes(keys, source, family, experts=family != NAME), keys.architecture.startswith("qwen3")
    gguf.refuse_window(keys, s, family)
    mixer = AttentionMixer(s.heads, s.kv_heads, s.head_dim, gguf.rope(keys, s, source), hf.inverse_root(s.head_dim),
                           not is_3, qk_norm="head" if is_3 else "")
    return hf.spec(s, family, [LayerSpec(mixer, GatedFfn(s.ffn))] * s.layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    return names.hf_table(spec)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file, its rows in the order of a checkpoint."""
    return names.gguf_table(spec)
