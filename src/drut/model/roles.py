"""Roles: the canonical names of a model's tensors, whatever a file calls them, with their shape and shard axis."""

from __future__ import annotations

from enum import Enum

from drut.model.spec import GatedFfn, ModelSpec, MoeFfn


class Axis(Enum):
    """How tensor parallelism splits a role: by outputs, by inputs, by vocabulary, by experts,
    or not at all."""

    COL = "col"
    ROW = "row"
    EXPERT = "expert"
    VOCAB = "vocab"
    REPLICATE = "replicate"


# Roles of a layer carry the prefix "layers.<i>."; `layer_role` makes the full name.
AXES: dict[str, Axis] = {
    "embed": Axis.VOCAB,
    "head": Axis.VOCAB,
    "final_norm": Axis.REPLICATE,
    "attn_norm": Axis.REPLICATE,
    "q": Axis.COL,
    "k": Axis.COL,
    "v": Axis.COL,
    "q_bias": Axis.COL,
    "k_bias": Axis.COL,
    "v_bias": Axis.COL,
    "q_norm": Axis.REPLICATE,
    "k_norm": Axis.REPLICATE,
    "sinks": Axis.COL,
    "o": Axis.ROW,
    "ffn_norm": Axis.REPLICATE,
    "gate": Axis.COL,
    "up": Axis.COL,
    "down": Axis.ROW,
    "router": Axis.REPLICATE,
    "router_bias": Axis.REPLICATE,
    "correction": Axis.REPLICATE,
    "shared_router": Axis.REPLICATE,
    "gate_experts": Axis.EXPERT,
    "up_experts": Axis.EXPERT,
    "down_experts": Axis.EXPERT,
    "gate_experts_bias": Axis.EXPERT,
    "up_experts_bias": Axis.EXPERT,
    "down_experts_bias": Axis.EXPERT,
    "shared_gate": Axis.COL,
    "shared_up": Axis.COL,
    "shared_down": Axis.ROW,
}


def layer_role(layer: int, role: str) -> str:
    return f"layers.{layer}.{role}"


def _ffn_shapes(ffn: GatedFfn | MoeFfn, hidden: int) -> dict[str, tuple[int, ...]]:
    if isinstance(ffn, GatedFfn):
        return {"gate": (ffn.width, hidden), "up": (ffn.width, hidden), "down": (hidden, ffn.width)}
    experts, width = ffn.routing.experts, ffn.width
    shapes: dict[str, tuple[int, ...]] = {
        "router": (experts, hidden),
        "gate_experts": (experts, width, hidden),
        "up_experts": (experts, width, hidden),
        "down_experts": (experts, hidden, width),
    }
    if ffn.bias:
        shapes |= {"router_bias": (experts,), "gate_experts_bias": (experts, width),
                   "up_experts_bias": (experts, width), "down_experts_bias": (experts, hidden)}
    if ffn.correction:
        shapes["correction"] = (experts,)
    if ffn.shared_width:
        wide = ffn.shared_width
        shapes |= {"shared_gate": (wide, hidden), "shared_up": (wide, hidden), "shared_down": (hidden, wide)}
    if ffn.shared_gate:
        shapes["shared_router"] = (hidden,)
    return shapes


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Every role of `spec` with its shape: (outputs, inputs) of a matrix, (size,) of a vector, (experts, outputs,
    inputs) of experts' matrices and (experts, outputs) of their biases."""
    shapes: dict[str, tuple[int, ...]] = {"embed": (spec.vocab, spec.hidden)}
    for i, layer in enumerate(spec.layers):
        m, ffn = layer.mixer, layer.ffn
        inner: dict[str, tuple[int, ...]] = {
            "attn_norm": (spec.hidden,),
            "q": (m.q_width, spec.hidden),
            "k": (m.kv_width, spec.hidden),
            "v": (m.kv_width, spec.hidden),
            "o": (spec.hidden, m.q_width),
            "ffn_norm": (spec.hidden,),
            **_ffn_shapes(ffn, spec.hidden),
        }
        if m.qkv_bias:
            inner |= {"q_bias": (m.q_width,), "k_bias": (m.kv_width,), "v_bias": (m.kv_width,)}
        if m.qk_norm:
            inner |= {"q_norm": (m.head_dim,), "k_norm": (m.head_dim,)}
        if m.sinks:
            inner |= {"sinks": (m.heads,)}
        shapes |= {layer_role(i, role): shape for role, shape in inner.items()}
    shapes["final_norm"] = (spec.hidden,)
    if not spec.tied_head:
        shapes["head"] = (spec.vocab, spec.hidden)
    return shapes
