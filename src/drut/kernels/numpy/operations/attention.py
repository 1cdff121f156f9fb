"""Queries, keys and values, and attention over the pages."""

from __future__ import annotations

import numpy as np

from drut.kernels import ops
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.numpy.attention import attend
from drut.kernels.numpy.numbers import rotate, round_bf16
from drut.kernels.numpy.state import NumpyState, Run, multiply, normalized


def qkv(op: ops.Qkv, state: NumpyState, step: StepDescriptor) -> None:
    y = normalized(op.norm, state.get(op.x))
    for buffer, weight in ((op.q, op.q_proj), (op.k, op.k_proj), (op.v, op.v_proj)):
        state.set(buffer, multiply(weight, y))
    store_qkv(op, state, step)


def store_qkv(op: ops.Qkv | ops.StoreQkv, state: NumpyState, step: StepDescriptor) -> None:
    kv, rows = op.kv, step.rows
    q, k, v = (state.get(buffer) for buffer in (op.q, op.k, op.v))
    if op.wide_norm:
        q, k = normalized(op.q_norm, q), normalized(op.k_norm, k)
    q = q.reshape(rows, op.heads, kv.head_dim)
    k, v = (x.reshape(rows, kv.kv_heads, kv.head_dim) for x in (k, v))
    if not op.wide_norm:
        q, k = normalized(op.q_norm, q), normalized(op.k_norm, k)
    if op.rope is not None:
        q, k = rotate(q, state.get(op.rope)), rotate(k, state.get(op.rope))
    if op.growth is not None:
        amount, span = op.growth
        log = np.log((1 + step["position"][:rows] // span).astype(np.float32))
        q = q * (np.float32(1) + np.float32(amount) * log)[:, None, None]
    state.set(op.q, (round_bf16(q) if kv.dtype == "bf16" else q).reshape(rows, -1))
    state.pages(kv).write(kv.place(op.layer), step.slots(kv.group), k, v)


def attention(op: ops.Attention, state: NumpyState, step: StepDescriptor) -> None:
    kv, pages = op.kv, state.pages(op.kv)
    q = state.get(op.q).reshape(step.rows, kv.kv_heads, op.heads // kv.kv_heads, kv.head_dim)
    blocks, table = step["blocks"], step.tables(kv.group)[step["seq"][: step.rows]]
    out = [
        attend(pages, op, q[row], int(position) + 1, blocks[int(first) :]).reshape(-1)
        for row, (position, first) in enumerate(zip(step["position"][: step.rows], table, strict=True))
    ]
    state.set(op.out, np.stack(out))


OPERATIONS: dict[type[ops.Op], Run] = {ops.Qkv: qkv, ops.StoreQkv: store_qkv, ops.Attention: attention}
