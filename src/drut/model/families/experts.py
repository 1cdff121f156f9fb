"""Helpers of families with experts: which layers have experts, and their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from drut.errors import ModelFileError, UnsupportedError
from drut.kernels.ops import Routing
from drut.model.families.gguf import GgufKeys
from drut.model.families.table import Stored, StoredExperts
from drut.model.ffns.moe import MoeFfn
from drut.model.spec import ModelSpec, check
from drut.model.weights.metadata import require
from drut.model.weights.source import TensorSource

COUNTS = ("num_local_experts", "num_experts")  # names of the same setting, the older one last
SOFTMAX, SIGMOID = 1, 2  # values of `expert_gating_func` in GGUF files


def with_experts(spec: ModelSpec, ffn: MoeFfn, sparse: Callable[[int], bool], path: str) -> ModelSpec:
    """Returns `spec` with experts in the layers that are `sparse`."""
    layers = tuple(replace(layer, ffn=ffn) if sparse(i) else layer for i, layer in enumerate(spec.layers))
    return check(replace(spec, layers=layers), path)


def hf_names(block: str, *, shared: str = "shared_expert",
             each: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")) -> dict[str, str | Stored]:
    """Maps each role to its tensor under `block` of a layer: a tensor for each expert, with the names `each` of gate,
    up and down, or else one tensor for all experts, gate and up fused."""

    def one(name: str, part: int, parts: int, fused: str) -> StoredExperts:
        whole = StoredExperts(f"{block}.experts.{fused}", part=part, parts=parts)
        return StoredExperts(f"{block}.experts.{{}}.{name}.weight", otherwise=whole)

    gate, up, down = each
    return {
        "router": f"{block}.gate.weight", "score_bias": f"{block}.gate.e_score_correction_bias",
        "shared_router": f"{block}.shared_expert_gate.weight",
        "shared_gate": f"{block}.{shared}.gate_proj.weight", "shared_up": f"{block}.{shared}.up_proj.weight",
        "shared_down": f"{block}.{shared}.down_proj.weight",
        "gate_experts": one(gate, 0, 2, "gate_up_proj"), "up_experts": one(up, 1, 2, "gate_up_proj"),
        "down_experts": one(down, 0, 1, "down_proj"),
    }


def hf_count(config: Mapping[str, object], path: str, names: Sequence[str] = COUNTS) -> int:
    """Returns the number of experts of a layer. Raises ModelFileError if two of the keys `names` differ."""
    found = {name: require(config, name, int, path) for name in names if config.get(name) is not None}
    if len(set(found.values())) > 1:
        raise ModelFileError(f"{path}: {' and '.join(found)} differ: {', '.join(map(str, found.values()))}")
    return next(iter(found.values())) if found else require(config, names[0], int, path)


def gguf_ffn(keys: GgufKeys, source: TensorSource, *, normalize: bool = True, gating: int = SOFTMAX,
             shared_gate: bool = False) -> MoeFfn:
    """Returns the experts of a GGUF file; `normalize` and `gating` are its architecture's defaults."""
    gating = keys.get("expert_gating_func", int, gating) or gating
    if gating not in (SOFTMAX, SIGMOID):
        raise UnsupportedError(f"{keys.path}: {keys.architecture}.expert_gating_func {gating} is not supported")
    groups, kept = (keys.get(f"expert_group_{key}", int, 1) or 1 for key in ("count", "used_count"))
    routing = Routing(keys.need("expert_count", int), keys.alike("expert_used_count"), sigmoid=gating == SIGMOID,
                      normalize=keys.get("expert_weights_norm", bool, normalize),
                      scale=keys.get("expert_weights_scale", float, 1.0) or 1.0, groups=groups, kept_groups=kept)
    width = keys.alike("expert_feed_forward_length", 0) or keys.alike("feed_forward_length")
    shared = next((t for name, t in source.tensors.items() if name.endswith("ffn_up_shexp.weight")), None)
    score_bias = any(name.endswith("exp_probs_b.bias") for name in source.tensors)
    return MoeFfn(width, routing, shared.shape[0] if shared else 0, shared_gate, score_bias)


def gguf_sparse(source: TensorSource) -> Callable[[int], bool]:
    """Returns a function: whether a layer of a GGUF file has experts. A layer with experts has a router."""
    return lambda layer: f"blk.{layer}.ffn_gate_inp.weight" in source.tensors
