"""Operations around one or two matrices, and their parts."""

from __future__ import annotations

from typing import Any

from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.native.compile.row import OpCompiler
from drut.kernels.native.workspace import Workspace, address, norm


class ProjectArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("source", "weight", "x", "row_scale"),
                *abi.int32s("in_stride", "stride", "in_format", "add"), *abi.floats("scale"), *abi.int32s(abi.RESERVED))


class NormalizeArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("x"), ("norm", abi.NormArgs), *abi.pointers("out"),
                *abi.int32s("width", "stride", "out_stride", abi.RESERVED))


class ActivateArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("gate", "up", "out"), *abi.int32s("stride", "activation"))


class AddArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("source"), ("norm", abi.NormArgs), *abi.pointers("x"),
                *abi.int32s("width", "in_stride", "stride"), *abi.floats("scale"))


class GateUpArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("x"), ("norm", abi.NormArgs), *abi.pointers("gate", "up", "out"),
                *abi.int32s("width", "stride", "out_stride", "out_format", "activation", abi.RESERVED))


def project(op: ops.Project, workspace: Workspace) -> dict[str, Any]:
    source, in_stride = workspace.buffer(op.source)
    x, stride = workspace.buffer(op.x)
    row_scale = None if op.shared is None else workspace.routes.shared(op.shared)
    return {"source": source, "in_stride": in_stride, "in_format": workspace.activation_format(op),
            "weight": address(op.weight), "x": x, "stride": stride, "row_scale": row_scale, "add": op.add,
            "scale": op.scale}


def normalize(op: ops.Normalize, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    out, out_stride = workspace.buffer(op.out)
    return {"x": x, "width": op.x.width, "stride": stride, "norm": norm(op.norm), "out": out, "out_stride": out_stride}


def tap(op: ops.Tap, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    out, out_stride = workspace.buffer(op.out)
    return {"x": x, "width": op.x.width, "stride": stride, "norm": norm(None), "out": out + 4 * op.column,
            "out_stride": out_stride}


def activate(op: ops.Activate, workspace: Workspace) -> dict[str, Any]:
    gate = workspace.buffer(op.gate)[0] if op.gate else None
    up, stride = workspace.buffer(op.up)
    out, _ = workspace.buffer(op.out)
    return {"gate": gate, "up": up, "out": out, "stride": stride, "activation": abi.ACTIVATIONS[op.activation]}


def add(op: ops.Add, workspace: Workspace) -> dict[str, Any]:
    source, in_stride = workspace.buffer(op.source)
    x, stride = workspace.buffer(op.x)
    return {"source": source, "in_stride": in_stride, "norm": norm(op.norm), "x": x, "width": op.x.width,
            "stride": stride, "scale": op.scale}


def gate_up(op: ops.GateUp, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    out, out_stride = workspace.buffer(op.out)
    return {"x": x, "width": op.x.width, "stride": stride, "norm": norm(op.norm), "gate": address(op.gate),
            "up": address(op.up), "out": out, "out_stride": out_stride, "out_format": workspace.activation_format(op),
            "activation": abi.ACTIVATIONS[op.activation]}


ROWS: dict[type[ops.Op], OpCompiler] = {
    ops.Project: OpCompiler("project", ProjectArgs, project),
    ops.Normalize: OpCompiler("normalize", NormalizeArgs, normalize),
    ops.Tap: OpCompiler("tap", NormalizeArgs, tap),
    ops.Activate: OpCompiler("activate", ActivateArgs, activate),
    ops.Add: OpCompiler("add", AddArgs, add),
    ops.GateUp: OpCompiler("gate_up", GateUpArgs, gate_up),
}
