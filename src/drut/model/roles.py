"""Roles: the canonical names of a model's tensors, whatever a file calls them, with their shape and shard axis."""

from __future__ import annotations

from enum import Enum

from drut.model.spec import AttentionMixer, GatedFfn, LayerSpec, ModelSpec, MoeFfn, PlainFfn


class Axis(Enum):
    """How tensor parallelism splits a role: by outputs, by inputs, by experts, by vocabulary, or not at all."""

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
AXES |= {f"{norm}_bias": Axis.REPLICATE for norm in ("final_norm", "attn_norm", "ffn_norm")}


def layer_role(layer: int, role: str) -> str:
    return f"layers.{layer}.{role}"


Shapes = dict[str, tuple[int, ...]]


def expected_shapes(spec: ModelSpec) -> Shapes:
    """Every role of `spec` with its shape: (outputs, inputs) of a matrix, (size,) of a vector, (experts, outputs,
    inputs) of experts' matrices and (experts, outputs) of their biases."""
    shapes: Shapes = {"embed": (spec.vocab, spec.hidden)}
    for i, layer in enumerate(spec.layers):
        inner = _norms(spec, layer) | _attention(spec.hidden, layer.mixer) | _ffn(spec.hidden, layer.ffn)
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


def _attention(hidden: int, m: AttentionMixer) -> Shapes:
    shapes: Shapes = {"q": (m.q_width, hidden), "k": (m.kv_width, hidden), "v": (m.kv_width, hidden),
                      "o": (hidden, m.q_width)}
    if m.qkv_bias:
        shapes |= {"q_bias": (m.q_width,), "k_bias": (m.kv_width,), "v_bias": (m.kv_width,)}
    if m.o_bias:
        shapes["o_bias"] = (hidden,)
    if m.qk_norm == "head":
        shapes |= {"q_norm": (m.head_dim,), "k_norm": (m.head_dim,)}
    if m.qk_norm == "width":
        shapes |= {"q_norm": (m.q_width,), "k_norm": (m.kv_width,)}
    if m.sinks:
        shapes["sinks"] = (m.heads,)
    return shapes


def _ffn(hidden: int, ffn: GatedFfn | PlainFfn | MoeFfn) -> Shapes:
    if isinstance(ffn, MoeFfn):
        return _experts(hidden, ffn)
    inner = ["gate", "up"] if isinstance(ffn, GatedFfn) else ["up"]
    shapes: Shapes = {**dict.fromkeys(inner, (ffn.width, hidden)), "down": (hidden, ffn.width)}
    if ffn.bias:
        shapes |= {f"{name}_bias": (shape[0],) for name, shape in shapes.items()}
    return shapes


def _experts(hidden: int, ffn: MoeFfn) -> Shapes:
    experts, width = ffn.routing.experts, ffn.width
    shapes: Shapes = {
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
