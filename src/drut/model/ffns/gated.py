"""The gated feed-forward."""

from __future__ import annotations

from drut.kernels.ops import Buffer, GateUp, Project
from drut.kernels.plan import Recorder
from drut.model.spec import LayerSpec, ModelSpec
from drut.model.weights.loader import Weights


def record(r: Recorder, spec: ModelSpec, layer: LayerSpec, index: int, weights: Weights, x: Buffer) -> None:
    """x += down(silu(gate(y)) * up(y)), y = norm(x)."""
    w, inner = weights.layer(index), Buffer("inner", layer.ffn.width)
    r.add(GateUp(index, x, w.vector("ffn_norm"), spec.norm_eps, w.matrix("gate"), w.matrix("up"), inner))
    r.add(Project(index, inner, w.matrix("down"), x))
