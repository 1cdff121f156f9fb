"""Queries, keys and values, and attention over the pages."""

from __future__ import annotations

from typing import Any

from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.native.compile.row import OpCompiler
from drut.kernels.native.workspace import Workspace, address, norm


class QkvArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("x"),
                *[(name, abi.NormArgs) for name in ("norm", "q_norm", "k_norm")],
                *abi.pointers("q_proj", "k_proj", "v_proj", "rope", "q", "k", "v"),
                *abi.int32s("width", "stride", "q_stride", "kv_stride", "heads", "kv_heads", "head_dim", "rope_half",
                            "kv_dtype", "wide_norm", "position_span"),
                *abi.floats("position_scale"), *abi.int32s("group", abi.RESERVED), *abi.int64s("layer_offset"))


class AttentionArgs(abi.Struct):
    _fields_ = (("op", abi.OpArgs), *abi.pointers("q", "out", "sinks"),
                *abi.int32s("q_stride", "out_stride", "heads", "kv_heads", "head_dim", "kv_dtype"),
                *abi.floats("scale"), *abi.int32s("out_format", "window"), *abi.floats("softcap"),
                *abi.int32s("group", abi.RESERVED), *abi.int64s("layer_offset"))


def qkv(op: ops.Qkv, workspace: Workspace) -> dict[str, Any]:
    x, stride = workspace.buffer(op.x)
    return _stored(op, workspace) | {
        "x": x, "norm": norm(op.norm), "width": op.x.width, "stride": stride,
        "q_proj": address(op.q_proj), "k_proj": address(op.k_proj), "v_proj": address(op.v_proj),
    }


def store_qkv(op: ops.StoreQkv, workspace: Workspace) -> dict[str, Any]:
    unread = dict.fromkeys(("x", "q_proj", "k_proj", "v_proj"))
    return _stored(op, workspace) | unread | {"norm": norm(None), "width": 0, "stride": 0}


def _stored(op: ops.Qkv | ops.StoreQkv, workspace: Workspace) -> dict[str, Any]:
    """Returns the fields for the work after the projections, common to both operations."""
    q, q_stride = workspace.buffer(op.q)
    k, kv_stride = workspace.buffer(op.k)
    rope, half = workspace.rope(op.rope)
    amount, span = op.growth or (0.0, 0)
    return {
        "q": q, "k": k, "v": workspace.buffer(op.v)[0], "q_stride": q_stride, "kv_stride": kv_stride,
        "q_norm": norm(op.q_norm), "k_norm": norm(op.k_norm), "wide_norm": op.wide_norm,
        "rope": rope, "rope_half": half, "position_scale": amount, "position_span": span, **_pages(op, op.heads),
    }


def _pages(op: ops.Qkv | ops.StoreQkv | ops.Attention, heads: int) -> dict[str, Any]:
    """Returns the numbers of heads, and the place of the layer's keys and values in the pages."""
    kv = op.kv
    return {"heads": heads, "kv_heads": kv.kv_heads, "head_dim": kv.head_dim, "kv_dtype": abi.KV_DTYPES[kv.dtype],
            "group": kv.group, "layer_offset": kv.offset(op.layer)}


def attention(op: ops.Attention, workspace: Workspace) -> dict[str, Any]:
    q, q_stride = workspace.buffer(op.q)
    out, out_stride = workspace.buffer(op.out)
    return {"q": q, "q_stride": q_stride, "out": out, "out_stride": out_stride,
            "out_format": workspace.activation_format(op), "sinks": address(op.sinks), "scale": op.scale,
            "window": op.window, "softcap": op.cap, **_pages(op, op.heads)}


ROWS: dict[type[ops.Op], OpCompiler] = {
    ops.Qkv: OpCompiler("qkv", QkvArgs, qkv),
    ops.StoreQkv: OpCompiler("store_qkv", QkvArgs, store_qkv),
    ops.Attention: OpCompiler("attention", AttentionArgs, attention),
}
