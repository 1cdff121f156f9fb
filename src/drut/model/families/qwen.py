"""Qwen2 and 2.5 (q, k and v with biases) and Qwen3 (heads of q and k normed)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.metadata import optional, require_list
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "qwen", "Qwen2, Qwen2.5, Qwen3 (dense)"
HF_ARCHITECTURES: tuple[str, ...] = ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("qwen2", "qwen3")

# Defaults of the keys that a config may omit.
DEFAULTS: Metadata = {"sliding_window": 4096, "max_window_layers": 28, "num_key_value_heads": 32}
DEFAULTS_3: Metadata = {**DEFAULTS, "head_dim": 128}
Windows = Callable[[Metadata, hf.Sizes, str], list[int]]  # returns the window of each layer
KNOWN = ("sliding_window", "use_sliding_window", "layer_types")


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Qwen3")
    return dense(config, path, NAME, is_3=is_3, known=KNOWN, defaults=DEFAULTS_3 if is_3 else DEFAULTS,
                 windows=_windows)


def dense(config: Metadata, path: str, family: str, *, is_3: bool, known: Sequence[str], defaults: Metadata,
          windows: Windows) -> ModelSpec:
    """Returns the spec with the same dense feed-forward in all layers, for a `family` that knows the settings
    `known`."""
    config, s = hf.open_config(config, family, path, (*known, "attention_bias") if is_3 else known, defaults)
    bias = optional(config, "attention_bias", bool, path, False) if is_3 else False
    rope, scale = hf_rope.rope(config, s, family, path), hf.inverse_root(s.head_dim)
    ffn = GatedFfn(s.ffn, hf.activation(config, family, path))
    layers = [LayerSpec(AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                                       softmax_scale=scale, qkv_bias=bias or not is_3, o_bias=bias,
                                       qk_norm="head" if is_3 else "", window=window), ffn)
              for window in windows(config, s, path)]
    return hf.spec(s, family, layers, hf.rms_eps(config, path), path)


def used_window(config: Metadata, path: str) -> Metadata:
    """Returns the config, without `sliding_window` if `use_sliding_window` is off."""
    return config if optional(config, "use_sliding_window", bool, path, False) else {**config, "sliding_window": None}


def _windows(config: Metadata, s: hf.Sizes, path: str) -> list[int]:
    """Returns the window of each layer: by `layer_types`, or else for the layers past `max_window_layers`."""
    config, full = used_window(config, path), optional(config, "max_window_layers", int, path, 0)
    used = config.get("sliding_window") is not None
    return hf.layer_windows(config, s, NAME, path, lambda layer: used and layer >= full)[1]


def from_gguf(metadata: Metadata, source: TensorSource, path: str, family: str = NAME) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s, is_3 = gguf.sizes(keys, source, family, experts=family != NAME), keys.architecture.startswith("qwen3")
    gguf.refuse_window(keys, s, family)
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=gguf.rope(keys, s, source),
                           softmax_scale=hf.inverse_root(s.head_dim), qkv_bias=not is_3, qk_norm="head" if is_3 else "")
    return hf.spec(s, family, [LayerSpec(mixer, GatedFfn(s.ffn))] * s.layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file; its rows are in the order of a checkpoint."""
    return names.gguf_table(spec)
