"""A mixture of experts: a router, the experts it chooses for each position, and perhaps one that all share."""

from __future__ import annotations

from drut.kernels.ops import Buffer, ExpertsDown, ExpertsGateUp, GateUp, Project, Route, Routes
from drut.kernels.plan import Recorder
from drut.model.residual import norm
from drut.model.spec import LayerSpec, ModelSpec, MoeFfn
from drut.model.weights.loader import Weights


def record(r: Recorder, spec: ModelSpec, layer: LayerSpec, index: int, weights: Weights, x: Buffer) -> None:
    """x += experts(y) + shared(y), y = norm(x). All that reads y comes before what changes x. `weights`: the
    layer's."""
    ffn, w = layer.ffn, weights
    assert isinstance(ffn, MoeFfn)
    before, how = norm(spec, w, "ffn_norm"), ffn.routing
    routes = Routes("routes", how.experts, how.top_k)
    r.add(Route(index, x, before, w.matrix("router"), how, routes,
                w.vector("correction") if ffn.correction else None,
                w.vector("shared_router") if ffn.shared_gate else None))
    inner = Buffer("inner_experts", ffn.width, how.top_k)
    r.add(ExpertsGateUp(index, x, before, w.stack("gate_experts"), w.stack("up_experts"), routes, inner,
                        ffn.activation))
    shared = Buffer("inner_shared", ffn.shared_width)
    if ffn.shared_width:
        r.add(GateUp(index, x, before, w.matrix("shared_gate"), w.matrix("shared_up"), shared))
    r.add(ExpertsDown(index, inner, w.stack("down_experts"), routes, x))
    if ffn.shared_width:
        r.add(Project(index, shared, w.matrix("shared_down"), x, shared=routes if ffn.shared_gate else None))
