"""The tiny checkpoints as GGUF files: the same fp32 weights, named and laid out as llama.cpp's converter does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden import experts
from tests.golden.weights import F32, NAMES, config, tensors
from tests.model.gguf_writer import ARRAY, INT32, STRING, Tensor, Typed, gguf
from tests.model.gguf_writer import F32 as F32_TYPE

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2",
                 "gemma3_text": "gemma3", "phi3": "phi3", "olmo2": "olmo2", "olmo3": "olmo2", "granite": "granite",
                 "smollm3": "smollm3", "glm4": "glm4", "starcoder2": "starcoder2", "cohere2": "cohere2",
                 "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "glm4_moe": "glm4moe",
                 "gpt_oss": "gpt-oss", "ministral3": "mistral3"}
# No keys tell of what these are.
UNTOLD = ("gemma2_scaled", "ministral_mix", "qwen2_window", "starcoder2_erf", "gpt_oss_mxfp4")
GGUF_NAMES = tuple(name for name in NAMES if name not in UNTOLD)
PAIRED = ("llama", "granite", "smollm3", "mistral3")  # whose rows of q and k are laid pair by pair
PARTS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
    **experts.PARTS,
}


def architecture(name: str) -> str:
    return ARCHITECTURES[config(name)["model_type"]]


def metadata(name: str) -> dict[str, object]:
    """Keys of checkpoint `name` and a tokenizer of one word a token."""
    cfg = config(name)
    arch, vocab = architecture(name), cfg["vocab_size"]
    own: dict[str, object] = {
        "block_count": cfg["num_hidden_layers"],
        "context_length": cfg["max_position_embeddings"],
        "embedding_length": cfg["hidden_size"],
        "feed_forward_length": cfg["intermediate_size"],
        "attention.head_count": cfg["num_attention_heads"],
        "attention.head_count_kv": cfg["num_key_value_heads"],
        **_rope(cfg), **experts.keys(cfg),
    }
    if "rms_norm_eps" in cfg:
        own["attention.layer_norm_rms_epsilon"] = cfg["rms_norm_eps"]
    else:
        own["attention.layer_norm_epsilon"] = cfg.get("norm_epsilon") or cfg["layer_norm_eps"]
    if "head_dim" in cfg:
        own |= {"attention.key_length": cfg["head_dim"], "attention.value_length": cfg["head_dim"]}
    if cfg.get("sliding_window") and not arch.startswith("qwen"):
        own["attention.sliding_window"] = cfg["sliding_window"]
    if arch == "gemma2":
        own |= {f"{key}_softcapping": float(cfg[f"{key}_softcapping"]) for key in ("attn_logit", "final_logit")}
    if arch == "granite":
        own |= {"attention.scale": cfg["attention_multiplier"], "residual_scale": cfg["residual_multiplier"],
                "embedding_scale": cfg["embedding_multiplier"], "logit_scale": cfg["logits_scaling"]}
    if arch == "cohere2":
        own["logit_scale"] = cfg["logit_scale"]
    return {
        "general.architecture": arch,
        **{f"{arch}.{key}": value for key, value in own.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2" if arch.startswith("qwen") else "gpt-2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(vocab)],
        "tokenizer.ggml.token_type": Typed(ARRAY, [1] * vocab, item=INT32),
        "tokenizer.ggml.merges": Typed(ARRAY, [], item=STRING),
    }


def _tables(cfg: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rope of layers that see all, and of those with a window."""
    rope = cfg.get("rope_parameters") or {"rope_theta": cfg["rope_theta"], **(cfg.get("rope_scaling") or {})}
    return rope.get("full_attention", rope), rope.get("sliding_attention", rope)


def _rope(cfg: dict[str, Any]) -> dict[str, object]:
    rope, local = _tables(cfg)
    own: dict[str, object] = {"rope.freq_base": float(rope["rope_theta"])}
    if cfg["model_type"] == "gemma3_text":
        own["rope.freq_base_swa"] = float(local["rope_theta"])
    part = cfg.get("partial_rotary_factor") or rope.get("partial_rotary_factor")
    if part:
        own["rope.dimension_count"] = int(part * _head_dim(cfg))
    if _kind(rope) in ("linear", "yarn"):
        own |= {"rope.scaling.type": _kind(rope), "rope.scaling.factor": float(rope["factor"])}
    if _kind(rope) == "yarn":
        own["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    if "mscale_all_dim" in rope:
        own["rope.scaling.yarn_log_multiplier"] = rope["mscale_all_dim"]
    if "llama_4_scaling_beta" in rope:
        own["attention.temperature_scale"] = rope["llama_4_scaling_beta"]
    if _kind(rope) == "longrope":
        original = cfg["original_max_position_embeddings"]
        factor = cfg["max_position_embeddings"] / original
        own |= {"rope.scaling.original_context_length": original,
                "rope.scaling.attn_factor": float(np.sqrt(1 + np.log(factor) / np.log(original)))}
    return own


def stored(name: str) -> list[tuple[str, F32]]:
    """GGUF names and values of checkpoint `name`."""
    cfg, arch = config(name), architecture(name)
    out, rest = experts.to_gguf(list(tensors(name)))
    for tensor, values in rest:
        layer, part, kind = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)\.(weight|bias|sinks)", tensor).groups()
        if kind == "sinks":
            out.append((f"blk.{layer}.attn_sinks.weight", values))
            continue
        own = PARTS[part]
        if part == "post_attention_layernorm" and cfg["model_type"] in (
                "gemma2", "gemma3_text", "olmo2", "olmo3", "glm4_moe", "gpt_oss"):
            own = "post_attention_norm"
        if arch in PAIRED and own in ("attn_q", "attn_k"):
            heads = cfg["num_attention_heads" if own == "attn_q" else "num_key_value_heads"]
            halves = values.reshape(heads, 2, -1, *values.shape[1:])  # a pair's members half a head apart
            values = halves.swapaxes(1, 2).reshape(values.shape)
        if arch.startswith("gemma") and own.endswith("norm"):
            values = values + np.float32(1)
        out.append((f"blk.{layer}." * (layer is not None) + f"{own}.{kind}", values))
    return [*out, *_rope_factors(cfg)]


def _rope_factors(cfg: dict[str, Any]) -> list[tuple[str, F32]]:
    rope, _ = _tables(cfg)
    if _kind(rope) == "llama3":
        return [("rope_freqs.weight", _llama3_factors(cfg, rope))]
    if _kind(rope) == "longrope":
        return [(f"rope_factors_{n}.weight", np.array(rope[f"{n}_factor"], np.float32)) for n in ("long", "short")]
    return []


def _kind(rope: dict[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _head_dim(cfg: dict[str, Any]) -> int:
    return int(cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"])


def _llama3_factors(cfg: dict[str, Any], rope: dict[str, Any]) -> F32:
    """What each pair's frequency is divided by: 1 where its wave is short, `factor` where it is long."""
    head_dim = _head_dim(cfg)
    wave = 2 * np.pi * cfg["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    short = np.clip((rope["original_max_position_embeddings"] / wave - low) / (high - low), 0, 1)
    return (1 / ((1 - short) / factor + short)).astype(np.float32)


def write_gguf(name: str, path: Path) -> Path:
    """Checkpoint `name` as a GGUF file at `path`."""
    items = [Tensor(n, v.shape[::-1], F32_TYPE, v.astype("<f4").tobytes()) for n, v in stored(name)]
    path.write_bytes(gguf(metadata(name), items))
    return path
