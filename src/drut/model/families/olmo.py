"""OLMo 2 and 3: what comes out of attention and feed-forward is normed, what goes in is not; q and k are normed over
all heads together. OLMo 3 has a window on three layers of four."""

from __future__ import annotations

from drut.model.families import gguf, hf, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.spec import AttentionMixer, GatedFfn, LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional, require_list
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "olmo", "OLMo 2, OLMo 3"
HF_ARCHITECTURES: tuple[str, ...] = ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("olmo2",)

DEFAULTS_3: Metadata = {"sliding_window": 4096}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """The spec of a `config.json`. Errors name the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Olmo3")
    known = ("attention_bias", "sliding_window", "layer_types") if is_3 else ("attention_bias",)
    config, s = hf.open_config(config, NAME, path, known, DEFAULTS_3 if is_3 else {})
    kinds = hf.layer_types(config, s, NAME, path, lambda layer: is_3 and (layer + 1) % 4 != 0)
    windows = hf.windows({**config, "layer_types": kinds}, s, NAME, path)
    ropes = {kind: _hf_rope(config, s, kind, is_3, path) for kind in dict.fromkeys(kinds)}
    bias = optional(config, "attention_bias", bool, path, False)
    ffn = GatedFfn(s.ffn, hf.activation(config, NAME, path))
    layers = [_layer(s, ropes[kind], window, ffn, bias) for kind, window in zip(kinds, windows, strict=True)]
    return hf.spec(s, NAME, layers, hf.rms_eps(config, path, 1e-5), path)


def _hf_rope(config: Metadata, s: hf.Sizes, kind: str, is_3: bool, path: str) -> Rope:
    """Layers with a window share the base and take no scaling, unless the file tells them apart."""
    table = hf.rope_table(config, path, kind)
    told_apart = "full_attention" in (config.get("rope_parameters") or ())  # type: ignore[operator]
    if kind == "sliding_attention" and not told_apart:
        table = {key: table[key] for key in ("rope_theta",) if key in table}
    return hf.rope(table, s, path, 500000.0 if is_3 else 10000.0)


def _layer(s: hf.Sizes, rope: Rope, window: int, ffn: GatedFfn, bias: bool = False) -> LayerSpec:
    mixer = AttentionMixer(s.heads, s.kv_heads, s.head_dim, rope, hf.inverse_root(s.head_dim), bias, bias, "width",
                           window)
    return LayerSpec(mixer, ffn, pre_norm=False, post_norm=True)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """The spec of a GGUF file; OLMo 3 is told by its window. Errors name the key."""
    keys = gguf.Keys(metadata, path)
    s = gguf.sizes(keys, source, NAME)
    rope = gguf.rope(keys, s, source)
    local = hf.rope({"rope_theta": keys.get("rope.freq_base", float, 10000.0)}, s, path)
    windowed = [keys.get("attention.sliding_window", int, 0) > 0 and (i + 1) % 4 != 0 for i in range(s.layers)]
    layers = [_layer(s, local if windowed[i] else rope, window, GatedFfn(s.ffn))
              for i, window in enumerate(gguf.windows(keys, s, windowed.__getitem__))]
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    return names.hf_table(spec, names.HF_POST_NORMS)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file."""
    return names.gguf_table(spec)
