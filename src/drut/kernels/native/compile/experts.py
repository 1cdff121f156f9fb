"""Routers and experts."""

from __future__ import annotations

from typing import Any

from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.native.compile.row import OpCompiler
from drut.kernels.native.workspace import Workspace, address, norm


class RouteArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("x"), ("norm", abi.NormArgs),
                *abi.pointers("weight", "score_bias", "shared_gate", "logits", "routes", "loads", "used_count"),
                *abi.int32s("width", "stride", "logits_stride", "sigmoid", "normalize", "groups", "kept_groups"),
                *abi.floats("scale"))


class ExpertsGateUpArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("x"), ("norm", abi.NormArgs),
                *abi.pointers("gate", "up", "routes", "out"),
                *abi.int32s("width", "stride", "out_stride", "out_format", "activation", abi.RESERVED))


class ExpertsDownArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("source", "down", "routes", "x"),
                *abi.int32s("in_stride", "stride", "in_format", abi.RESERVED))


def route(op: ops.Route, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    logits, logits_stride = workspace.buffer(ops.Buffer("router_logits", op.routing.experts))
    loads, used = workspace.routes.counters(op.layer, op.routing.experts)
    how = op.routing
    return {"x": x, "width": op.x.width, "stride": stride, "norm": norm(op.norm), "weight": address(op.weight),
            "score_bias": address(op.correction), "shared_gate": address(op.shared_gate), "logits": logits,
            "logits_stride": logits_stride, "routes": workspace.routes.address(op.routes), "loads": loads,
            "used_count": used, "sigmoid": how.sigmoid, "normalize": how.normalize, "groups": how.groups,
            "kept_groups": how.kept_groups, "scale": how.scale}


def gate_up(op: ops.ExpertsGateUp, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    out, out_stride = workspace.buffer(op.out)
    return {"x": x, "width": op.x.width, "stride": stride, "norm": norm(op.norm), "gate": address(op.gate),
            "up": address(op.up), "routes": workspace.routes.address(op.routes), "out": out, "out_stride": out_stride,
            "out_format": workspace.activation_format(op), "activation": abi.ACTIVATIONS[op.activation]}


def down(op: ops.ExpertsDown, workspace: Workspace) -> dict[str, Any]:
    source, in_stride = workspace.buffer(op.source)
    x, stride = workspace.buffer(op.x)
    return {"source": source, "in_stride": in_stride, "in_format": workspace.activation_format(op),
            "down": address(op.down), "routes": workspace.routes.address(op.routes), "x": x, "stride": stride}


ROWS: dict[type[ops.Op], OpCompiler] = {
    ops.Route: OpCompiler("route", RouteArgs, route),
    ops.ExpertsGateUp: OpCompiler("experts_gate_up", ExpertsGateUpArgs, gate_up),
    ops.ExpertsDown: OpCompiler("experts_down", ExpertsDownArgs, down),
}
