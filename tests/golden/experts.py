"""The tensors of experts in the tiny checkpoints, as checkpoints and as GGUF files have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Shapes = Iterator[tuple[str, tuple[int, ...]]]
COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
GATED = ("gate_proj", "up_proj", "down_proj")


def sparse(cfg: dict[str, Any], layer: int) -> bool:
    """Whether a layer has experts."""
    return any(key in cfg for key in COUNTS) and (
        layer not in cfg.get("mlp_only_layers", ()) and layer >= cfg.get("first_k_dense_replace", 0))


def shapes(cfg: dict[str, Any]) -> Shapes:
    """Of a layer's tensors, without the layer's prefix."""
    hidden, kind = cfg["hidden_size"], cfg["model_type"]
    count = next(cfg[key] for key in COUNTS if key in cfg)
    width = cfg.get("moe_intermediate_size") or cfg["intermediate_size"]
    if kind == "gpt_oss":
        yield from (("mlp.router.weight", (count, hidden)), ("mlp.router.bias", (count,)))
        for name, n, k in (("gate_up_proj", 2 * width, hidden), ("down_proj", hidden, width)):
            if "quantization_config" in cfg:  # MXFP4, whose rows are outputs
                yield f"mlp.experts.{name}_blocks", (count, n, k // 32, 16)
                yield f"mlp.experts.{name}_scales", (count, n, k // 32)
            else:
                yield f"mlp.experts.{name}", (count, k, n)
            yield f"mlp.experts.{name}_bias", (count, n)
        return
    block, names = ("block_sparse_moe", ("w1", "w3", "w2")) if kind == "mixtral" else ("mlp", GATED)
    yield f"{block}.gate.weight", (count, hidden)
    if kind == "glm4_moe":
        yield f"{block}.gate.e_score_correction_bias", (count,)
    for e in range(count):
        yield from _gated(f"{block}.experts.{e}", width, hidden, names)
    if kind == "qwen2_moe":
        yield from _gated(f"{block}.shared_expert", cfg["shared_expert_intermediate_size"], hidden, names)
        yield f"{block}.shared_expert_gate.weight", (1, hidden)
    if kind == "glm4_moe":
        yield from _gated(f"{block}.shared_experts", width * cfg["n_shared_experts"], hidden, names)


def _gated(block: str, width: int, hidden: int, names: tuple[str, str, str]) -> Shapes:
    for name, shape in zip(names, ((width, hidden), (width, hidden), (hidden, width)), strict=True):
        yield f"{block}.{name}.weight", shape


# Names in GGUF files, of what is not gathered by `to_gguf`.
PARTS = {
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    **{f"mlp.{shared}.{part}_proj": f"ffn_{part}_shexp" for shared in ("shared_expert", "shared_experts")
       for part in ("gate", "up", "down")},
}
EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def keys(cfg: dict[str, Any]) -> dict[str, object]:
    """Of a GGUF file, without the architecture's prefix."""
    names = {"num_local_experts": "expert_count", "num_experts": "expert_count", "n_routed_experts": "expert_count",
             "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
             "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
             "n_shared_experts": "expert_shared_count", "first_k_dense_replace": "leading_dense_block_count",
             "routed_scaling_factor": "expert_weights_scale", "n_group": "expert_group_count",
             "topk_group": "expert_group_used_count"}
    found = {ours: cfg[theirs] for theirs, ours in names.items() if theirs in cfg}
    if cfg["model_type"] == "glm4_moe":
        found |= {"expert_gating_func": 2, "expert_weights_norm": cfg["norm_topk_prob"]}
    return found


def to_gguf(items: list[tuple[str, F32]]) -> tuple[list[tuple[str, F32]], list[tuple[str, F32]]]:
    """The tensors that GGUF files keep otherwise, under their names there, and the rest as they were."""
    gathered: dict[str, list[F32]] = {}
    found, rest = [], []
    for tensor, values in items:
        layer, part = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)", tensor).groups()
        block = f"blk.{layer}."
        if one := re.fullmatch(r".+\.experts\.\d+\.(\w+)\.weight", part):
            gathered.setdefault(f"{block}ffn_{EXPERT[one[1]]}_exps.weight", []).append(values)
        elif part.startswith("mlp.experts."):
            found += [(block + name, own) for name, own in _oss(part.removeprefix("mlp.experts."), values)]
        elif part == "mlp.gate.e_score_correction_bias":
            found.append((block + "exp_probs_b.bias", values))
        elif part == "mlp.shared_expert_gate.weight":
            found.append((block + "ffn_gate_inp_shexp.weight", values[0]))
        else:
            rest.append((tensor, values))
    return [*found, *((name, np.stack(values)) for name, values in gathered.items())], rest


def _oss(name: str, values: F32) -> Iterator[tuple[str, F32]]:
    kind = "bias" if name.endswith("_bias") else "weight"
    rows = values if kind == "bias" else values.swapaxes(1, 2)
    if name.startswith("down"):
        yield f"ffn_down_exps.{kind}", rows
    else:
        yield f"ffn_gate_exps.{kind}", rows[:, ::2]
        yield f"ffn_up_exps.{kind}", rows[:, 1::2]
