"""Roles: the canonical names of a model's tensors, independent of their names in files, with shape and shard axis."""

from __future__ import annotations

from enum import Enum

from drut.model.part import Shapes
from drut.model.spec import LayerSpec, ModelSpec


class Axis(Enum):
    """The axis by which tensor parallelism splits a role: outputs, inputs, experts, vocabulary, or none."""

    COL = "col"
    ROW = "row"
    EXPERT = "expert"
    VOCAB = "vocab"
    REPLICATE = "replicate"


# Roles of a layer have the prefix "layers.<i>."; `layer_role` returns the full name.
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
    "o_bias": Axis.REPLICATE,
    "attn_post_norm": Axis.REPLICATE,
    "ffn_norm": Axis.REPLICATE,
    "gate": Axis.COL,
    "up": Axis.COL,
    "down": Axis.ROW,
    "gate_bias": Axis.COL,
    "up_bias": Axis.COL,
    "down_bias": Axis.REPLICATE,
    "ffn_post_norm": Axis.REPLICATE,
    "router": Axis.REPLICATE,
    "router_bias": Axis.REPLICATE,
    "score_bias": Axis.REPLICATE,
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
AXES |= {f"{norm}_bias": Axis.REPLICATE for norm in ("final_norm", "attn_norm", "ffn_norm")}


def axis_of(role: str) -> Axis:
    """Returns the shard axis of a role, with or without its layer's prefix."""
    return AXES[role.rsplit(".", 1)[-1]]


def layer_role(layer: int, role: str) -> str:
    return f"layers.{layer}.{role}"


def expected_shapes(spec: ModelSpec) -> Shapes:
    """Returns every role of `spec` with its shape: (outputs, inputs) of a matrix, (size,) of a vector, (experts,
    outputs, inputs) of experts' matrices and (experts, outputs) of their biases."""
    shapes: Shapes = {"embed": (spec.vocab, spec.hidden)}
    for i, layer in enumerate(spec.layers):
        inner = _norms(spec, layer) | layer.mixer.shapes(spec.hidden) | layer.ffn.shapes(spec.hidden)
        shapes |= {layer_role(i, role): shape for role, shape in inner.items()}
    shapes["final_norm"] = (spec.hidden,)
    if spec.norm_bias:
        shapes["final_norm_bias"] = (spec.hidden,)
    if not spec.tied_head:
        shapes["head"] = (spec.vocab, spec.hidden)
    return shapes


def _norms(spec: ModelSpec, layer: LayerSpec) -> Shapes:
    names = []
    if layer.pre_norm:
        names += ["attn_norm"] if layer.parallel else ["attn_norm", "ffn_norm"]
    if layer.post_norm:
        names += ["attn_post_norm", "ffn_post_norm"]
    if spec.norm_bias:
        names += [f"{name}_bias" for name in names]
    return dict.fromkeys(names, (spec.hidden,))
