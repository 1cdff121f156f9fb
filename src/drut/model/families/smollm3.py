"""SmolLM3: Llama in which every fourth layer has no positional encoding (NoPE)."""

from __future__ import annotations

from drut.errors import ModelFileError
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional, require_list
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "smollm3", "SmolLM3"
HF_ARCHITECTURES: tuple[str, ...] = ("SmolLM3ForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("smollm3",)

DEFAULTS: Metadata = {"tie_word_embeddings": True, "num_key_value_heads": 4}
KNOWN = ("attention_bias", "mlp_bias", "sliding_window", "use_sliding_window", "layer_types", "no_rope_layers")


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, KNOWN, DEFAULTS)
    has_rope = _has_rope(config, s, path)
    used = optional(config, "use_sliding_window", bool, path, False)
    windowed = used and config.get("sliding_window") is not None
    _, windows = hf.layer_windows(config, s, NAME, path, lambda layer: windowed and not has_rope[layer])
    bias, ffn_bias = (optional(config, key, bool, path, False) for key in ("attention_bias", "mlp_bias"))
    ffn, rope = GatedFfn(s.ffn, hf.activation(config, NAME, path), ffn_bias), hf_rope.rope(config, s, NAME, path,
                                                                                           theta=2e6)
    layers = [_layer(s, rope if has_rope[i] else None, ffn, bias, windows[i]) for i in range(s.layers)]
    return hf.spec(s, NAME, layers, hf.rms_eps(config, path), path)


def _has_rope(config: Metadata, s: hf.Sizes, path: str) -> list[bool]:
    """Returns for each layer whether it has rope: 1 in `no_rope_layers`."""
    if config.get("no_rope_layers") is None:
        every = optional(config, "no_rope_layer_interval", int, path, 4)
        if every < 1:
            raise ModelFileError(f"{path}: no_rope_layer_interval is {every}")
        return [(layer + 1) % every != 0 for layer in range(s.layers)]
    flags = require_list(config, "no_rope_layers", int, path)
    if len(flags) < s.layers or not set(flags) <= {0, 1}:
        raise ModelFileError(f"{path}: no_rope_layers is not 0 or 1 for each of {s.layers} layers")
    return [bool(flag) for flag in flags[: s.layers]]


def _layer(s: hf.Sizes, rope: Rope | None, ffn: GatedFfn, bias: bool, window: int = 0) -> LayerSpec:
    return LayerSpec(AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                                    softmax_scale=hf.inverse_root(s.head_dim), qkv_bias=bias, o_bias=bias,
                                    window=window), ffn)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME)
    gguf.refuse_window(keys, s, NAME)
    rope = gguf.rope(keys, s, source)
    layers = [_layer(s, rope if (i + 1) % 4 else None, GatedFfn(s.ffn), False) for i in range(s.layers)]
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file, in which rope pairs are adjacent rows of q and k."""
    return names.gguf_table(spec, pairs=True)
