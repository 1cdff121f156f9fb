"""The first and last operations of a step: embedding and rope tables, head and sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.native.compile.row import OpCompiler
from drut.kernels.native.workspace import Workspace, address, norm


class EmbedArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("table", "x"), *abi.int32s("stride"), *abi.floats("scale"))


class RopeTableArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("inv_freq", "table"), *abi.int32s("half"), *abi.floats("scale"))


class HeadArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("x"), ("norm", abi.NormArgs), *abi.pointers("weight", "logits"),
                *abi.int32s("width", "stride", "logits_stride"), *abi.floats("scale", "softcap"),
                *abi.int32s(abi.RESERVED))


class SampleArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("logits"), *abi.int32s("logits_stride", "vocab"))


def embed(op: ops.Embed, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    return {"table": address(op.table), "x": x, "stride": stride, "scale": op.scale}


def rope_table(op: ops.RopeTable, workspace: Workspace) -> dict[str, Any]:
    frequencies = workspace.keep(np.array(op.inv_freq, np.float64))
    table, _ = workspace.rope(op.rope)
    return {"inv_freq": frequencies.ctypes.data, "table": table, "half": len(frequencies), "scale": op.scale}


def head(op: ops.Head, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    return {"x": x, "norm": norm(op.norm), "weight": address(op.weight), "logits": workspace.logits.ctypes.data,
            "width": op.x.width, "stride": stride, "logits_stride": workspace.logits.shape[1], "scale": op.scale,
            "softcap": op.cap}


def sample(op: ops.Sample, workspace: Workspace) -> dict[str, Any]:
    return {"logits": workspace.logits.ctypes.data, "logits_stride": workspace.logits.shape[1], "vocab": op.vocab}


ROWS: dict[type[ops.Op], OpCompiler] = {
    ops.Embed: OpCompiler("embed", EmbedArgs, embed),
    ops.RopeTable: OpCompiler("rope_table", RopeTableArgs, rope_table),
    ops.Head: OpCompiler("head", HeadArgs, head),
    ops.Sample: OpCompiler("sample", SampleArgs, sample),
}
