"""Llama 2 and 3, SmolLM2, and Mistral without a sliding window."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from drut.errors import ModelFileError, UnsupportedError
from drut.model import rope as ropes
from drut.model.families.table import Stored
from drut.model.roles import layer_role
from drut.model.spec import AttentionMixer, GatedFfn, LayerSpec, ModelSpec, Rope, check
from drut.model.weights.metadata import optional, require, require_list
from drut.model.weights.source import TensorSource

NAME = "llama"
HF_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
GGUF_ARCHITECTURES = ("llama",)

Metadata = Mapping[str, object]


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """The spec of a `config.json`. Errors name the key."""
    architecture = require_list(config, "architectures", str, path)[0]
    activation = optional(config, "hidden_act", str, path, "silu")
    if activation != "silu":
        raise UnsupportedError(f"{path}: hidden_act {activation!r} is not supported by family llama (supported: silu)")
    for key in ("attention_bias", "mlp_bias"):
        if optional(config, key, bool, path, False):
            raise UnsupportedError(f"{path}: {key} is not supported by family llama")
    hidden = require(config, "hidden_size", int, path)
    heads = require(config, "num_attention_heads", int, path)
    context = require(config, "max_position_embeddings", int, path)
    window = optional(config, "sliding_window", int, path)
    if window is not None and window < context:
        raise UnsupportedError(f"{path}: sliding_window {window} is not supported by family llama")
    if heads < 1:
        raise ModelFileError(f"{path}: num_attention_heads is {heads}")
    head_dim = optional(config, "head_dim", int, path, hidden // heads)
    mixer = AttentionMixer(heads, optional(config, "num_key_value_heads", int, path, heads), head_dim,
                           Rope(_hf_frequencies(config, head_dim, path)), _scale(head_dim))
    return _spec(path, architecture, require(config, "num_hidden_layers", int, path), mixer,
                 require(config, "intermediate_size", int, path), vocab=require(config, "vocab_size", int, path),
                 hidden=hidden, eps=optional(config, "rms_norm_eps", float, path, 1e-6), context=context,
                 tied=optional(config, "tie_word_embeddings", bool, path, False))


def _hf_frequencies(config: Metadata, head_dim: int, path: str) -> tuple[float, ...]:
    """Of `rope_parameters` (which holds the base too) or the older `rope_scaling` beside `rope_theta`."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise ModelFileError(f"{path}: rope_scaling must be an object")
    theta = optional(scaling, "rope_theta", float, path) or optional(config, "rope_theta", float, path, 10000.0)
    base = _frequencies(theta, head_dim, path)
    kind = optional(scaling, "rope_type", str, path) or optional(scaling, "type", str, path, "default")
    if kind == "default":
        return base
    if kind == "linear":
        return ropes.linear(base, _positive(scaling, "factor", path))
    if kind == "llama3":
        low, high = _positive(scaling, "low_freq_factor", path), _positive(scaling, "high_freq_factor", path)
        if not low < high:
            raise ModelFileError(f"{path}: low_freq_factor {low} is not below high_freq_factor {high}")
        return ropes.llama3(base, _positive(scaling, "factor", path), low, high,
                            require(scaling, "original_max_position_embeddings", int, path))
    raise ropes.unsupported(kind, path)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """The spec of a GGUF file of architecture `llama`. Errors name the key."""
    hidden = require(metadata, "llama.embedding_length", int, path)
    heads = require(metadata, "llama.attention.head_count", int, path)
    if optional(metadata, "llama.expert_count", int, path, 0):
        raise UnsupportedError(f"{path}: llama.expert_count: mixture of experts is not supported by family llama")
    if heads < 1:
        raise ModelFileError(f"{path}: llama.attention.head_count is {heads}")
    head_dim = optional(metadata, "llama.attention.key_length", int, path, hidden // heads)
    if optional(metadata, "llama.attention.value_length", int, path, head_dim) != head_dim:
        raise UnsupportedError(f"{path}: llama.attention.value_length differs from key_length")
    turned = optional(metadata, "llama.rope.dimension_count", int, path, head_dim)
    mixer = AttentionMixer(heads, optional(metadata, "llama.attention.head_count_kv", int, path, heads), head_dim,
                           Rope(_gguf_frequencies(metadata, source, turned, path)), _scale(head_dim))
    embed = source.tensors.get("token_embd.weight")
    if embed is None:
        raise ModelFileError(f"{path}: tensor 'token_embd.weight' is missing")
    return _spec(path, "llama", require(metadata, "llama.block_count", int, path), mixer,
                 require(metadata, "llama.feed_forward_length", int, path), vocab=embed.shape[0], hidden=hidden,
                 eps=require(metadata, "llama.attention.layer_norm_rms_epsilon", float, path),
                 context=require(metadata, "llama.context_length", int, path),
                 tied="output.weight" not in source.tensors)


def _gguf_frequencies(metadata: Metadata, source: TensorSource, turned: int, path: str) -> tuple[float, ...]:
    base = _frequencies(optional(metadata, "llama.rope.freq_base", float, path, 10000.0), turned, path)
    kind = optional(metadata, "llama.rope.scaling.type", str, path, "none")
    if kind == "linear":
        base = ropes.linear(base, _positive(metadata, "llama.rope.scaling.factor", path))
    elif kind not in ("none", "llama3"):
        raise ropes.unsupported(kind, path)
    info = source.tensors.get("rope_freqs.weight")
    if info is None:
        return base
    if info.encoding != "F32" or info.shape != (len(base),):
        raise ModelFileError(f"{path}: tensor 'rope_freqs.weight' is not {len(base)} F32 values")
    factors = [float(f) for f in source.raw("rope_freqs.weight").view(np.float32)]
    if not all(0 < f < 1e9 for f in factors):
        raise ModelFileError(f"{path}: tensor 'rope_freqs.weight' holds a factor that is not positive")
    return ropes.by_factors(base, factors)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint."""
    names = {
        "attn_norm": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
        "o": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }
    table = {"embed": Stored("model.embed_tokens.weight"), "final_norm": Stored("model.norm.weight")}
    for i in range(len(spec.layers)):
        table |= {layer_role(i, role): Stored(f"model.layers.{i}.{name}.weight") for role, name in names.items()}
    return table if spec.tied_head else table | {"head": Stored("lm_head.weight")}


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file; its q and k rows are interleaved pair by pair."""
    names = {
        "attn_norm": "attn_norm", "v": "attn_v", "o": "attn_output", "ffn_norm": "ffn_norm", "gate": "ffn_gate",
        "up": "ffn_up", "down": "ffn_down",
    }
    table = {"embed": Stored("token_embd.weight"), "final_norm": Stored("output_norm.weight")}
    for i, layer in enumerate(spec.layers):
        table |= {layer_role(i, role): Stored(f"blk.{i}.{name}.weight") for role, name in names.items()}
        table[layer_role(i, "q")] = Stored(f"blk.{i}.attn_q.weight", layer.mixer.heads)
        table[layer_role(i, "k")] = Stored(f"blk.{i}.attn_k.weight", layer.mixer.kv_heads)
    return table if spec.tied_head else table | {"head": Stored("output.weight")}


def _spec(path: str, architecture: str, layers: int, mixer: AttentionMixer, ffn: int, *, vocab: int, hidden: int,
          eps: float, context: int, tied: bool) -> ModelSpec:
    if not 1 <= layers <= 4096:
        raise UnsupportedError(f"{path}: {layers} layers are outside 1..4096")
    layer = LayerSpec(mixer, GatedFfn(ffn))
    return check(ModelSpec(architecture, NAME, vocab, hidden, (layer,) * layers, eps, context, tied), path)


def _frequencies(theta: float, width: int, path: str) -> tuple[float, ...]:
    if not 1 <= theta <= 1e12:
        raise ModelFileError(f"{path}: rope base {theta} is outside 1..1e12")
    if width % 2 or not 2 <= width <= 256:
        raise UnsupportedError(f"{path}: rope over {width} elements of a head is not supported")
    return ropes.frequencies(theta, width)


def _positive(table: Metadata, key: str, path: str) -> float:
    value = require(table, key, float, path)
    if not value > 0:
        raise ModelFileError(f"{path}: {key} is {value}, not positive")
    return value


def _scale(head_dim: int) -> float:
    return float(max(head_dim, 1)) ** -0.5
