"""OLMo 2 and 3: outputs of attention and feed-forward are normed, inputs are not; q and k are normed over all heads
together. OLMo 3 has a window on three layers of four."""

from __future__ import annotations

from drut.errors import UnsupportedError
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional, require_list
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "olmo", "OLMo 2, OLMo 3"
HF_ARCHITECTURES: tuple[str, ...] = ("Olmo2ForCausalLM", "Olmo3ForCausalLM")
GGUF_ARCHITECTURES: tuple[str, ...] = ("olmo2",)

DEFAULTS_3: Metadata = {"sliding_window": 4096}
THETA_3 = 500000.0


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Olmo3")
    known = ("attention_bias", "sliding_window", "layer_types") if is_3 else ("attention_bias",)
    config, s = hf.open_config(config, NAME, path, known, DEFAULTS_3 if is_3 else {})
    kinds, windows = hf.layer_windows(config, s, NAME, path, lambda layer: is_3 and (layer + 1) % 4 != 0)
    ropes = _hf_ropes(config, s, is_3, path)
    bias = optional(config, "attention_bias", bool, path, False)
    ffn = GatedFfn(s.ffn, hf.activation(config, NAME, path))
    layers = [_layer(s, ropes[kind], window, ffn, bias) for kind, window in zip(kinds, windows, strict=True)]
    return hf.spec(s, NAME, layers, hf.rms_eps(config, path, 1e-5), path)


def _hf_ropes(config: Metadata, s: hf.Sizes, is_3: bool, path: str) -> dict[str, Rope]:
    """Returns the rope of each kind of layer. In OLMo 3, layers with a window have no scaling."""
    if not is_3:
        return dict.fromkeys((hf_rope.FULL, hf_rope.WINDOW), hf_rope.rope(config, s, NAME, path))
    tables = hf_rope.tables(config, path, full=THETA_3, window=THETA_3)
    older = optional(config, "rope_theta", float, path, THETA_3)
    if tables[hf_rope.WINDOW]["rope_theta"] != older and not config.get("rope_parameters"):
        raise UnsupportedError(f"{path}: rope_theta {older} without rope_parameters is not supported, as it does not "
                               "name the base of layers with a window")
    return {kind: hf_rope.from_table(table, s, NAME, path) for kind, table in tables.items()}


def _layer(s: hf.Sizes, rope: Rope, window: int, ffn: GatedFfn, bias: bool = False) -> LayerSpec:
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                           softmax_scale=hf.inverse_root(s.head_dim), qkv_bias=bias, o_bias=bias, qk_norm="width",
                           window=window)
    return LayerSpec(mixer, ffn, pre_norm=False, post_norm=True)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file; a window identifies OLMo 3. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME)
    rope = gguf.rope(keys, s, source)
    local = hf_rope.from_table({"rope_theta": keys.get("rope.freq_base", float, 10000.0)}, s, NAME, path)
    windowed = gguf.windowed(keys, s, 4)
    layers = [_layer(s, local if windowed[i] else rope, window, GatedFfn(s.ffn))
              for i, window in enumerate(gguf.windows(keys, s, windowed.__getitem__))]
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec, names.HF_POST_NORMS)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file."""
    return names.gguf_table(spec)
