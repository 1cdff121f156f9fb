"""Gemma 2 (soft caps, a window on every second layer) and the text part of Gemma 3 (heads of q and k normed, a window
on five layers of six, which have a rope base of their own). Both norm the input and the output of mixer and
feed-forward."""

from __future__ import annotations

from drut.errors import ModelFileError, UnsupportedError
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional, require_list
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "gemma", "Gemma 2, Gemma 3 (text)"
HF_ARCHITECTURES: tuple[str, ...] = ("Gemma2ForCausalLM", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
GGUF_ARCHITECTURES: tuple[str, ...] = ("gemma2", "gemma3")

COMMON: Metadata = {"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096, "tie_word_embeddings": True,
                    "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_activation": "gelu_pytorch_tanh",
                    "num_hidden_layers": 26, "hidden_size": 2304, "intermediate_size": 9216}
DEFAULTS_2: Metadata = {**COMMON, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                        "max_position_embeddings": 8192, "vocab_size": 256000}
DEFAULTS_3: Metadata = {**COMMON, "max_position_embeddings": 131072, "vocab_size": 262208}
KNOWN = ("query_pre_attn_scalar", "sliding_window", "layer_types", "attention_bias", "attn_logit_softcapping",
         "final_logit_softcapping")
SOFT_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
LARGEST = {"gemma2": 46, "gemma3": 62}  # layers of the 27B models, whose softmax scale is 1 / sqrt(hidden / heads)


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    is_3 = require_list(config, "architectures", str, path)[0].startswith("Gemma3")
    config, s = hf.open_config(config, NAME, path, KNOWN, DEFAULTS_3 if is_3 else DEFAULTS_2)
    pattern = optional(config, "sliding_window_pattern", int, path, 6 if is_3 else 2)
    if pattern < 1:
        raise ModelFileError(f"{path}: sliding_window_pattern is {pattern}")
    act = hf.activation(config, NAME, path, "hidden_activation", supported=("gelu_tanh",))
    if not is_3 and pattern != 2 and config.get("layer_types") is None:
        raise UnsupportedError(f"{path}: sliding_window_pattern {pattern} is not supported for {s.architecture}")
    kinds, windows = hf.layer_windows(config, s, NAME, path, lambda layer: (layer + 1) % pattern != 0)
    ropes = _hf_ropes(config, s, is_3, path)
    softcap, logit_softcap = (optional(config, key, float, path, 0.0) for key in ("attn_logit_softcapping",
                                                                                  "final_logit_softcapping"))
    bias = optional(config, "attention_bias", bool, path, False)
    scale = hf.inverse_root(hf.positive(config, "query_pre_attn_scalar", float, path))
    layers = [_layer(s, ropes[kind], scale, window, softcap, is_3, act, bias)
              for kind, window in zip(kinds, windows, strict=True)]
    return hf.spec(s, NAME, layers, hf.rms_eps(config, path), path, embed_scale=hf.root(s.hidden),
                   logit_softcap=logit_softcap)


def _hf_ropes(config: Metadata, s: hf.Sizes, is_3: bool, path: str) -> dict[str, Rope]:
    """Returns the rope of each kind of layer. In Gemma 3, layers with a window have their own base and no scaling."""
    if not is_3:
        return dict.fromkeys((hf_rope.FULL, hf_rope.WINDOW), hf_rope.rope(config, s, NAME, path))
    tables = hf_rope.tables(config, path, full=1e6, window=1e4, local="rope_local_base_freq")
    return {kind: hf_rope.from_table(table, s, NAME, path) for kind, table in tables.items()}


def _layer(s: hf.Sizes, rope: Rope, scale: float, window: int, softcap: float, is_3: bool, act: str,
           bias: bool = False) -> LayerSpec:
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope, softmax_scale=scale,
                           qkv_bias=bias, o_bias=bias, qk_norm="head" if is_3 else "", window=window, softcap=softcap)
    return LayerSpec(mixer, GatedFfn(s.ffn, act), post_norm=True)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key."""
    keys = gguf.GgufKeys(metadata, path)
    is_3 = keys.architecture == "gemma3"
    s = gguf.sizes(keys, source, NAME, known=(*SOFT_CAPS, "rope.freq_base_swa") if is_3 else SOFT_CAPS)
    width = 0 if is_3 else 4096  # default of the window
    rope = gguf.rope(keys, s, source, theta=1e6 if is_3 else 1e4)
    base = keys.get("rope.freq_base_swa", float, 1e4)
    local = hf_rope.from_table({"rope_theta": base}, s, NAME, path) if is_3 else rope
    scale = hf.inverse_root(s.hidden / max(s.heads, 1) if s.layers == LARGEST[keys.architecture] else s.head_dim)
    softcap = 0.0 if is_3 else keys.get("attn_logit_softcapping", float, 50.0)
    windowed = gguf.windowed(keys, s, 6 if is_3 else 2, width)
    layers = [_layer(s, local if windowed[i] else rope, scale, window, softcap, is_3, "gelu_tanh")
              for i, window in enumerate(gguf.windows(keys, s, windowed.__getitem__, width))]
    return hf.spec(s, NAME, layers, gguf.rms_eps(keys), path, embed_scale=hf.root(s.hidden),
                   logit_softcap=keys.get("final_logit_softcapping", float, 0.0 if is_3 else 30.0))


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint, which stores norm weights minus 1."""
    return names.offset_norms(names.hf_table(spec, names.HF_POST_NORMS), 1.0)


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file, which stores norm weights as they are used."""
    return names.gguf_table(spec)
