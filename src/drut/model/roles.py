"""Roles: the canonical names of a model's tensors, whatever a file calls them, with their shape and shard axis."""

from __future__ import annotations

from enum import Enum

from drut.model.spec import ModelSpec


class Axis(Enum):
    """How tensor parallelism splits a role: by outputs, by inputs, by vocabulary, or not at all."""

    COL = "col"
    ROW = "row"
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
}


def layer_role(layer: int, role: str) -> str:
    return f"layers.{layer}.{role}"


def expected_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Every role of `spec` with its shape: (outputs, inputs) of a matrix, (size,) of a vector."""
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
            "gate": (ffn.width, spec.hidden),
            "up": (ffn.width, spec.hidden),
            "down": (spec.hidden, ffn.width),
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
