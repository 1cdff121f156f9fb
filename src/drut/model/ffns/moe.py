"""A mixture of experts: a router, the experts it chooses for each position, and an optional shared expert."""

from __future__ import annotations

from dataclasses import dataclass

from drut.kernels.ops import Activate, Add, Buffer, ExpertsDown, ExpertsGateUp, Project, Route, Routes, Routing
from drut.model.part import Ffn, Scope, Shapes
from drut.model.rules import LIMITS, Rules
from drut.model.spec import LayerSpec


@dataclass(frozen=True)
class MoeFfn(Ffn):
    """A router that chooses `routing.top_k` experts of `width` for each row, and an optional shared expert.

    `bias`: router and experts add biases. `shared_gate`: a sigmoid of the row weighs the shared expert. `score_bias`:
    a bias is added to the router's scores only for choosing experts (`e_score_correction_bias`).
    """

    width: int
    routing: Routing
    shared_width: int = 0
    shared_gate: bool = False
    score_bias: bool = False
    bias: bool = False
    activation: str = "silu"

    kind = "moe"

    def shapes(self, hidden: int) -> Shapes:
        experts, width = self.routing.experts, self.width
        shapes: Shapes = {
            "router": (experts, hidden),
            "gate_experts": (experts, width, hidden),
            "up_experts": (experts, width, hidden),
            "down_experts": (experts, hidden, width),
        }
        if self.bias:
            shapes |= {"router_bias": (experts,), "gate_experts_bias": (experts, width),
                       "up_experts_bias": (experts, width), "down_experts_bias": (experts, hidden)}
        if self.score_bias:
            shapes["score_bias"] = (experts,)
        if self.shared_width:
            wide = self.shared_width
            shapes |= {"shared_gate": (wide, hidden), "shared_up": (wide, hidden), "shared_down": (hidden, wide)}
        if self.shared_gate:
            shapes["shared_router"] = (hidden,)
        return shapes

    def check(self, layer: LayerSpec, rules: Rules) -> None:
        how, demand = self.routing, rules.demand
        rules.bounded("ffn width", self.width)
        plain = layer.pre_norm and not layer.post_norm and not layer.parallel and layer.residual_scale == 1
        demand(plain, "experts with norms after them, in parallel or scaled are not supported")
        rules.bounded("experts", how.experts)
        demand(0 <= self.shared_width <= LIMITS["ffn width"],
               f"shared expert width {self.shared_width} is out of bounds")
        demand(1 <= how.groups <= how.experts and how.experts % how.groups == 0,
               f"{how.experts} experts do not divide into {how.groups} groups")
        demand(1 <= how.kept_groups <= how.groups, f"{how.kept_groups} of {how.groups} groups of experts are kept")
        most = how.experts // how.groups * how.kept_groups
        demand(1 <= how.top_k <= most, f"top_k {how.top_k} of experts is outside 1..{most}")
        demand(0 < how.scale < 1e6, f"the scale of expert weights, {how.scale}, is not between 0 and 1e6")
        demand(how.sigmoid or not self.score_bias, "a score bias is not supported with softmax routing")

    def record(self, scope: Scope) -> None:
        """Records x += experts(y) + shared(y), y = norm(x). Order: all operations that read y precede those that
        change x, because y is not stored."""
        r, w, index, x = scope.recorder, scope.weights, scope.index, scope.x
        how, y = self.routing, scope.normed(x, "ffn_norm")
        routes = Routes("routes", how.experts, how.top_k)
        r.add(Route(layer=index, x=y, norm=None, weight=w.matrix("router"), routing=how, routes=routes,
                    correction=w.vector("score_bias") if self.score_bias else None,
                    shared_gate=w.vector("shared_router") if self.shared_gate else None))
        inner = Buffer("inner_experts", self.width, how.top_k)
        r.add(ExpertsGateUp(layer=index, x=y, norm=None, gate=w.stack("gate_experts"), up=w.stack("up_experts"),
                            routes=routes, out=inner, activation=self.activation))
        shared = Buffer("inner_shared", self.shared_width)
        if self.shared_width:
            gate, up = (scope.projected(y, f"shared_{role}", f"{shared.name}_{role}") for role in ("gate", "up"))
            r.add(Activate(index, gate, up, shared))
        r.add(ExpertsDown(index, inner, w.stack("down_experts"), routes, x))
        if self.shared_width:
            added = Buffer("added", x.width)
            r.add(Project(layer=index, source=shared, weight=w.matrix("shared_down"), x=added, add=False,
                          shared=routes if self.shared_gate else None))
            r.add(Add(index, added, None, x))
