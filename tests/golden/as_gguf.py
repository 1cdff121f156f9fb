"""The tiny checkpoints as GGUF files: the same fp32 weights, named and laid out as llama.cpp's converter does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.weights import F32, config, tensors
from tests.model.gguf_writer import ARRAY, STRING, Tensor, Typed, gguf
from tests.model.gguf_writer import F32 as F32_TYPE

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
                 "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"}
PARTS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
}
EXPERT_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def metadata(name: str) -> dict[str, object]:
    """Keys of checkpoint `name` and a tokenizer of one word a token."""
    cfg = config(name)
    arch, vocab = ARCHITECTURES[cfg["model_type"]], cfg["vocab_size"]
    rope = cfg.get("rope_parameters") or {"rope_theta": cfg["rope_theta"], **(cfg.get("rope_scaling") or {})}
    own: dict[str, object] = {
        "block_count": cfg["num_hidden_layers"],
        "context_length": cfg["max_position_embeddings"],
        "embedding_length": cfg["hidden_size"],
        "feed_forward_length": cfg["intermediate_size"],
        "attention.head_count": cfg["num_attention_heads"],
        "attention.head_count_kv": cfg["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": cfg["rms_norm_eps"],
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if "head_dim" in cfg:
        own |= {"attention.key_length": cfg["head_dim"], "attention.value_length": cfg["head_dim"]}
    own |= _experts(cfg)
    if _kind(rope) == "linear":
        own |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return {
        "general.architecture": arch,
        **{f"{arch}.{key}": value for key, value in own.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2" if arch.startswith("qwen") else "gpt-2",
        "tokenizer.ggml.tokens": [f"t{i}" for i in range(vocab)],
        "tokenizer.ggml.token_type": [1] * vocab,
        "tokenizer.ggml.merges": Typed(ARRAY, [], item=STRING),
    }


def _experts(cfg: dict[str, Any]) -> dict[str, object]:
    keys = {"num_local_experts": "expert_count", "num_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
            "shared_expert_intermediate_size": "expert_shared_feed_forward_length"}
    return {ours: cfg[theirs] for theirs, ours in keys.items() if theirs in cfg}


def stored(name: str) -> list[tuple[str, F32]]:
    """GGUF names and values of checkpoint `name`."""
    cfg = config(name)
    out = []
    experts: dict[str, list[F32]] = {}
    for tensor, values in tensors(name):
        if of_expert := re.fullmatch(r"model\.layers\.(\d+)\..+\.experts\.\d+\.(\w+)\.weight", tensor):
            layer, part = of_expert.groups()
            experts.setdefault(f"blk.{layer}.ffn_{EXPERT_PARTS[part]}_exps.weight", []).append(values)
            continue
        layer, part, kind = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)\.(weight|bias)", tensor).groups()
        if ARCHITECTURES[cfg["model_type"]] == "llama" and part in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = cfg["num_attention_heads" if "q_proj" in part else "num_key_value_heads"]
            halves = values.reshape(heads, 2, -1, values.shape[-1])  # a pair's members half a head apart
            values = halves.swapaxes(1, 2).reshape(values.shape)
        if part == "mlp.shared_expert_gate":
            values = values[0]
        out.append((f"blk.{layer}." * (layer is not None) + f"{PARTS[part]}.{kind}", values))
    out += [(tensor, np.stack(values)) for tensor, values in experts.items()]
    rope = cfg.get("rope_scaling") or {}
    if _kind(rope) == "llama3":
        out.append(("rope_freqs.weight", _llama3_factors(cfg, rope)))
    return out


def _kind(rope: dict[str, Any]) -> str:
    return str(rope.get("rope_type") or rope.get("type") or "default")


def _llama3_factors(cfg: dict[str, Any], rope: dict[str, Any]) -> F32:
    """What each pair's frequency is divided by: 1 where its wave is short, `factor` where it is long."""
    head_dim = cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]
    wave = 2 * np.pi * cfg["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    short = np.clip((rope["original_max_position_embeddings"] / wave - low) / (high - low), 0, 1)
    return (1 / ((1 - short) / factor + short)).astype(np.float32)


def write_gguf(name: str, path: Path) -> Path:
    """Checkpoint `name` as a GGUF file at `path`."""
    items = [Tensor(n, v.shape[::-1], F32_TYPE, v.astype("<f4").tobytes()) for n, v in stored(name)]
    path.write_bytes(gguf(metadata(name), items))
    return path
