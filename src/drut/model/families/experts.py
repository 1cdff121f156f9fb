"""What families with experts have in common: which layers have them, and their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from drut.errors import UnsupportedError
from drut.kernels.ops import Routing
from drut.model.families.table import Stored, StoredExperts
from drut.model.spec import ModelSpec, MoeFfn, check
from drut.model.weights.metadata import optional, require
from drut.model.weights.source import TensorSource

Metadata = Mapping[str, object]
SOFTMAX, SIGMOID = 1, 2  # values of `expert_gating_func` in GGUF files


def with_experts(spec: ModelSpec, ffn: MoeFfn, sparse: Callable[[int], bool], path: str) -> ModelSpec:
    """`spec` with experts in the layers that are `sparse`."""
    layers = tuple(replace(layer, ffn=ffn) if sparse(i) else layer for i, layer in enumerate(spec.layers))
    return check(replace(spec, layers=layers), path)


def hf_names(block: str, *, shared: str = "shared_expert", each: tuple[str, str, str] | None = None,
             router: str = "gate") -> dict[str, str | Stored]:
    """Role -> tensor under `block` of a layer: a tensor for each expert, with the names `each` of gate, up and down,
    or else all experts in one, gate and up fused."""
    gate, up, down = each or ("gate_proj", "up_proj", "down_proj")

    def one(name: str, part: int, parts: int, fused: str) -> StoredExperts:
        whole = StoredExperts(f"{block}.experts.{fused}", part=part, parts=parts)
        return StoredExperts(f"{block}.experts.{{}}.{name}.weight", otherwise=whole)

    return {
        "router": f"{block}.{router}.weight", "correction": f"{block}.{router}.e_score_correction_bias",
        "shared_router": f"{block}.shared_expert_gate.weight",
        "shared_gate": f"{block}.{shared}.gate_proj.weight", "shared_up": f"{block}.{shared}.up_proj.weight",
        "shared_down": f"{block}.{shared}.down_proj.weight",
        "gate_experts": one(gate, 0, 2, "gate_up_proj"), "up_experts": one(up, 1, 2, "gate_up_proj"),
        "down_experts": one(down, 0, 1, "down_proj"),
    }


GGUF_NAMES: dict[str, str | Stored] = {
    "router": "ffn_gate_inp.weight", "router_bias": "ffn_gate_inp.bias", "correction": "exp_probs_b.bias",
    "shared_router": "ffn_gate_inp_shexp.weight", "shared_gate": "ffn_gate_shexp.weight",
    "shared_up": "ffn_up_shexp.weight", "shared_down": "ffn_down_shexp.weight",
    **{f"{part}_experts": StoredExperts(f"ffn_{part}_exps.weight") for part in ("gate", "up", "down")},
    **{f"{part}_experts_bias": StoredExperts(f"ffn_{part}_exps.bias") for part in ("gate", "up", "down")},
}


def gguf_ffn(metadata: Metadata, source: TensorSource, path: str, *, normalize: bool,
             default_gating: int = SOFTMAX, shared_gate: bool = False) -> MoeFfn:
    """The experts of a GGUF file; `normalize` and `default_gating` are what its architecture does where no key
    tells."""
    arch = require(metadata, "general.architecture", str, path)

    def number(key: str, default: int) -> int:
        return optional(metadata, f"{arch}.{key}", int, path, default)

    gating = number("expert_gating_func", default_gating) or default_gating
    if gating not in (SOFTMAX, SIGMOID):
        raise UnsupportedError(f"{path}: {arch}.expert_gating_func {gating} is not supported")
    routing = Routing(
        require(metadata, f"{arch}.expert_count", int, path), require(metadata, f"{arch}.expert_used_count", int, path),
        sigmoid=gating == SIGMOID, normalize=optional(metadata, f"{arch}.expert_weights_norm", bool, path, normalize),
        scale=optional(metadata, f"{arch}.expert_weights_scale", float, path, 1.0) or 1.0,
        groups=number("expert_group_count", 1) or 1, kept_groups=number("expert_group_used_count", 1) or 1)
    width = number("expert_feed_forward_length", 0) or require(metadata, f"{arch}.feed_forward_length", int, path)
    names = set(source.tensors)
    shared = next((name for name in names if name.endswith("ffn_up_shexp.weight")), None)
    return MoeFfn(width, routing, source.tensors[shared].shape[0] if shared else 0, shared_gate,
                  any(name.endswith("exp_probs_b.bias") for name in names))
