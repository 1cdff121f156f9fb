"""What families of dense transformers have in common: metadata keys, rotary frequencies, names of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from drut.errors import ModelFileError, UnsupportedError
from drut.model import rope as ropes
from drut.model.families.experts import GGUF_NAMES as _EXPERT_NAMES
from drut.model.families.table import Stored, StoredExperts
from drut.model.roles import expected_shapes
from drut.model.spec import AttentionMixer, GatedFfn, LayerSpec, ModelSpec, Rope, check
from drut.model.weights.mapping import quote
from drut.model.weights.metadata import optional, require, require_list
from drut.model.weights.source import TensorSource

Metadata = Mapping[str, object]
Names = Mapping[str, str | Stored]

# Role -> tensor; those of a layer come after the layer's prefix.
_HF_NAMES = {
    "embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight",
    "attn_norm": "input_layernorm.weight", "ffn_norm": "post_attention_layernorm.weight",
    "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight",
    "q_bias": "self_attn.q_proj.bias", "k_bias": "self_attn.k_proj.bias", "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight", "o": "self_attn.o_proj.weight",
    "sinks": "self_attn.sinks",
    "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
}
_GGUF_NAMES = {
    "embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight",
    "attn_norm": "attn_norm.weight", "ffn_norm": "ffn_norm.weight",
    "q": "attn_q.weight", "k": "attn_k.weight", "v": "attn_v.weight",
    "q_bias": "attn_q.bias", "k_bias": "attn_k.bias", "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight", "k_norm": "attn_k_norm.weight", "o": "attn_output.weight",
    "sinks": "attn_sinks.weight",
    "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight",
}


def hf_table(spec: ModelSpec, names: Names | None = None) -> dict[str, Stored]:
    """Role -> tensor of a safetensors checkpoint; `names` are the family's own."""
    return _table(spec, {**_HF_NAMES, **(names or {})}, "model.layers.{}.")


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Role -> tensor of a GGUF file whose rows lie as in a checkpoint."""
    return _table(spec, {**_GGUF_NAMES, **_EXPERT_NAMES}, "blk.{}.")


def _table(spec: ModelSpec, names: Names, layer_prefix: str) -> dict[str, Stored]:
    table = {}
    for role in expected_shapes(spec):
        *layer, short = role.split(".")  # "layers", its number, the role in it; or the role alone
        table[role] = _stored(names[short], layer_prefix.format(layer[1]) if layer else "")
    return table


def _stored(named: str | Stored, prefix: str) -> Stored:
    if isinstance(named, str):
        return Stored(prefix + named)
    if isinstance(named, StoredExperts) and named.otherwise is not None:
        named = replace(named, otherwise=replace(named.otherwise, name=prefix + named.otherwise.name))
    return replace(named, name=prefix + named.name)


def hf_spec(config: Metadata, family: str, path: str, *, qkv_bias: bool = False,
            qk_norm: bool = False) -> ModelSpec:
    """The spec of a `config.json` whose layers are all alike. Errors name the key."""
    activation = optional(config, "hidden_act", str, path, "silu")
    if activation != "silu":
        raise UnsupportedError(f"{path}: hidden_act {quote(activation)} is not supported by family {family} "
                               "(supported: silu)")
    hidden = require(config, "hidden_size", int, path)
    heads = _heads(config, "num_attention_heads", path)
    head_dim = optional(config, "head_dim", int, path, hidden // heads)
    kv_heads = optional(config, "num_key_value_heads", int, path, heads)
    rope = Rope(_hf_frequencies(config, head_dim, path))
    mixer = AttentionMixer(heads, kv_heads, head_dim, rope, _scale(head_dim), qkv_bias, qk_norm)
    architecture = require_list(config, "architectures", str, path)[0]
    return _spec(path, architecture, family, require(config, "num_hidden_layers", int, path), mixer,
                 require(config, "intermediate_size", int, path),
                 vocab=require(config, "vocab_size", int, path), hidden=hidden,
                 eps=optional(config, "rms_norm_eps", float, path, 1e-6),
                 context=require(config, "max_position_embeddings", int, path),
                 tied=optional(config, "tie_word_embeddings", bool, path, False))


def refuse_flags(config: Metadata, keys: tuple[str, ...], family: str, path: str) -> None:
    """UnsupportedError naming the first of `keys` that is true."""
    for key in keys:
        if optional(config, key, bool, path, False):
            raise UnsupportedError(f"{path}: {key} is not supported by family {family}")


def _hf_frequencies(config: Metadata, head_dim: int, path: str) -> tuple[float, ...]:
    """Of `rope_parameters` (which holds the base too) or the older `rope_scaling` beside `rope_theta`."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(scaling, Mapping):
        raise ModelFileError(f"{path}: rope_scaling must be an object")
    for table in (config, scaling):
        turned = optional(table, "partial_rotary_factor", float, path, 1.0)
        if turned != 1:
            raise UnsupportedError(f"{path}: partial_rotary_factor {turned} is not supported")
    older = optional(config, "rope_theta", float, path, 10000.0)
    base = _frequencies(optional(scaling, "rope_theta", float, path, older), head_dim, path)
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


def gguf_spec(metadata: Metadata, source: TensorSource, family: str, path: str, *, qkv_bias: bool = False,
              qk_norm: bool = False, experts: bool = False) -> ModelSpec:
    """The spec of a GGUF file whose layers are all alike. Errors name the key or the tensor."""
    arch = require(metadata, "general.architecture", str, path)
    if not experts and optional(metadata, f"{arch}.expert_count", int, path, 0):
        raise UnsupportedError(f"{path}: {arch}.expert_count: experts are not supported by family {family}")
    hidden = require(metadata, f"{arch}.embedding_length", int, path)
    context = require(metadata, f"{arch}.context_length", int, path)
    window = optional(metadata, f"{arch}.attention.sliding_window", int, path, 0)
    if 0 < window < context:
        raise UnsupportedError(f"{path}: {arch}.attention.sliding_window {window} is not supported by family "
                               f"{family}")
    heads = _heads(metadata, f"{arch}.attention.head_count", path)
    head_dim = optional(metadata, f"{arch}.attention.key_length", int, path, hidden // heads)
    if optional(metadata, f"{arch}.attention.value_length", int, path, head_dim) != head_dim:
        raise UnsupportedError(f"{path}: {arch}.attention.value_length differs from key_length")
    turned = optional(metadata, f"{arch}.rope.dimension_count", int, path, head_dim)
    kv_heads = optional(metadata, f"{arch}.attention.head_count_kv", int, path, heads)
    rope = Rope(_gguf_frequencies(metadata, source, arch, turned, path))
    mixer = AttentionMixer(heads, kv_heads, head_dim, rope, _scale(head_dim), qkv_bias, qk_norm)
    embed = source.tensors.get("token_embd.weight")
    if embed is None:
        raise ModelFileError(f"{path}: tensor 'token_embd.weight' is missing")
    return _spec(path, arch, family, require(metadata, f"{arch}.block_count", int, path), mixer,
                 require(metadata, f"{arch}.feed_forward_length", int, path), vocab=embed.shape[0],
                 hidden=hidden, eps=require(metadata, f"{arch}.attention.layer_norm_rms_epsilon", float, path),
                 context=context, tied="output.weight" not in source.tensors)


def _gguf_frequencies(metadata: Metadata, source: TensorSource, arch: str, turned: int,
                      path: str) -> tuple[float, ...]:
    base = _frequencies(optional(metadata, f"{arch}.rope.freq_base", float, path, 10000.0), turned, path)
    kind = optional(metadata, f"{arch}.rope.scaling.type", str, path, "none")
    if kind == "linear":
        base = ropes.linear(base, _positive(metadata, f"{arch}.rope.scaling.factor", path))
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


def _spec(path: str, architecture: str, family: str, layers: int, mixer: AttentionMixer, ffn: int, *,
          vocab: int, hidden: int, eps: float, context: int, tied: bool) -> ModelSpec:
    if not 1 <= layers <= 4096:
        raise UnsupportedError(f"{path}: {layers} layers are outside 1..4096")
    layer = LayerSpec(mixer, GatedFfn(ffn))
    return check(ModelSpec(architecture, family, vocab, hidden, (layer,) * layers, eps, context, tied), path)


def _frequencies(theta: float, width: int, path: str) -> tuple[float, ...]:
    if not 1 <= theta <= 1e12:
        raise ModelFileError(f"{path}: rope base {theta} is outside 1..1e12")
    if width % 2 or not 2 <= width <= 256:
        raise UnsupportedError(f"{path}: rope over {width} elements of a head is not supported")
    return ropes.frequencies(theta, width)


def _heads(table: Metadata, key: str, path: str) -> int:
    heads = require(table, key, int, path)
    if heads < 1:
        raise ModelFileError(f"{path}: {key} is {heads}")
    return heads


def _positive(table: Metadata, key: str, path: str) -> float:
    value = require(table, key, float, path)
    if not value > 0:
        raise ModelFileError(f"{path}: {key} is {value}, not positive")
    return value


def _scale(head_dim: int) -> float:
    return 1.0 / math.sqrt(max(head_dim, 1))
