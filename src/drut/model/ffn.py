"""Dense feed-forwards."""

from __future__ import annotations

from drut.kernels.ops import Buffer, GateUp
from drut.kernels.plan import Recorder
from drut.model.residual import norm
from drut.model.spec import GatedFfn, LayerSpec, ModelSpec
from drut.model.weights.loader import Weights


def record(r: Recorder, spec: ModelSpec, layer: LayerSpec, index: int, weights: Weights, x: Buffer) -> Buffer:
    """activation(gate) * up, gate and up of norm(x): what `down` is to project back. `weights`: the layer's."""
    ffn, inner = layer.ffn, Buffer("inner", layer.ffn.width)
    before = norm(spec, weights, "attn_norm" if layer.parallel else "ffn_norm") if layer.pre_norm else None
    gate = weights.matrix("gate") if isinstance(ffn, GatedFfn) else None
    r.add(GateUp(index, x, before, gate, weights.matrix("up"), inner, ffn.activation))
    return inner
