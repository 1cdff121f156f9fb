"""GLM-4-MoE (GLM-4.5 and after): dense layers first, then experts chosen by sigmoids with a score bias, and a shared
expert. Layers past the last, for multi-token prediction, are not used."""

from __future__ import annotations

from dataclasses import replace

from drut.errors import ModelFileError
from drut.kernels.ops import Routing
from drut.model.families import gguf, hf, hf_rope, names
from drut.model.families.experts import SIGMOID, gguf_ffn, gguf_sparse, hf_count, hf_names, with_experts
from drut.model.families.hf import Metadata
from drut.model.families.table import Stored
from drut.model.ffns.dense import GatedFfn
from drut.model.ffns.moe import MoeFfn
from drut.model.mixers.attention import AttentionMixer
from drut.model.spec import LayerSpec, ModelSpec, Rope
from drut.model.weights.metadata import optional, require
from drut.model.weights.source import TensorSource

NAME, EXAMPLES = "glm_moe", "GLM-4.5, GLM-4.6"
HF_ARCHITECTURES: tuple[str, ...] = ("Glm4MoeForCausalLM",)
GGUF_ARCHITECTURES: tuple[str, ...] = ("glm4moe",)

COUNTS = ("n_routed_experts", "num_local_experts")  # names of one setting
KNOWN = ("attention_bias", "use_qk_norm", *COUNTS)
DEFAULTS: Metadata = {"num_key_value_heads": 8}


def from_hf(config: Metadata, path: str) -> ModelSpec:
    """Returns the spec of a `config.json`. An error names the key."""
    config, s = hf.open_config(config, NAME, path, KNOWN, DEFAULTS)
    hf.activation(config, NAME, path)
    bias, normed = (optional(config, key, bool, path, False) for key in ("attention_bias", "use_qk_norm"))
    rope = hf_rope.rope(config, s, NAME, path, partial=0.5)
    routing = Routing(hf_count(config, path, COUNTS), require(config, "num_experts_per_tok", int, path),
                      sigmoid=True, normalize=optional(config, "norm_topk_prob", bool, path, True),
                      scale=optional(config, "routed_scaling_factor", float, path, 1.0),
                      groups=optional(config, "n_group", int, path, 1),
                      kept_groups=optional(config, "topk_group", int, path, 1))
    width = require(config, "moe_intermediate_size", int, path)
    shared = optional(config, "n_shared_experts", int, path, 1) * width
    dense = optional(config, "first_k_dense_replace", int, path, 1)
    spec = _spec(s, rope, bias, normed, hf.rms_eps(config, path, 1e-5), path)
    return with_experts(spec, MoeFfn(width, routing, shared, score_bias=True), lambda i: i >= dense, path)


def _spec(s: hf.Sizes, rope: Rope, bias: bool, normed: bool, eps: float, path: str) -> ModelSpec:
    mixer = AttentionMixer(heads=s.heads, kv_heads=s.kv_heads, head_dim=s.head_dim, rope=rope,
                           softmax_scale=hf.inverse_root(s.head_dim), qkv_bias=bias, qk_norm="head" if normed else "")
    return hf.spec(s, NAME, [LayerSpec(mixer, GatedFfn(s.ffn))] * s.layers, eps, path, mtp_layer=True)


def from_gguf(metadata: Metadata, source: TensorSource, path: str) -> ModelSpec:
    """Returns the spec of a GGUF file. An error names the key. Biases and norms are found by their tensors."""
    keys = gguf.GgufKeys(metadata, path)
    s = gguf.sizes(keys, source, NAME, experts=True)
    drafting = keys.get("nextn_predict_layers", int, 0)
    if not 0 <= drafting < s.layers:
        raise ModelFileError(f"{path}: {keys.architecture}.nextn_predict_layers is {drafting}")
    s = replace(s, layers=s.layers - drafting)
    bias, normed = (f"blk.0.{name}" in source.tensors for name in ("attn_q.bias", "attn_q_norm.weight"))
    spec = _spec(s, gguf.rope(keys, s, source), bias, normed, gguf.rms_eps(keys), path)
    return with_experts(spec, gguf_ffn(keys, source, gating=SIGMOID), gguf_sparse(source), path)


def hf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a safetensors checkpoint."""
    return names.hf_table(spec, hf_names("mlp", shared="shared_experts"))


def gguf_table(spec: ModelSpec) -> dict[str, Stored]:
    """Maps each role to its tensor in a GGUF file; its rows are in the order of a checkpoint."""
    return names.gguf_table(spec, {"ffn_norm": "post_attention_norm.weight"})
