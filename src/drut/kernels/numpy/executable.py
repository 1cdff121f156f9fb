"""Runs a plan in NumPy, one operation after another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from drut.kernels import ops
from drut.kernels.backend import Executable, Limits, StepOutput
from drut.kernels.descriptor import RELAY, StepDescriptor
from drut.kernels.numpy.attention import Pages, attend
from drut.kernels.numpy.numbers import rms_norm, rotate, round_bf16, silu
from drut.kernels.numpy.sampling import sample
from drut.kernels.ops import F32, Buffer
from drut.kernels.plan import Plan


class NumpyExecutable(Executable):
    """Buffers live for one step; the relay lives on."""

    def __init__(self, plan: Plan, pool: NDArray[np.uint8], limits: Limits) -> None:
        self._plan, self._pool = plan, pool
        self._relay = np.zeros(limits.relay_slots, np.int32)
        self._pages: dict[Any, Pages] = {}
        self._values: dict[str, F32] = {}
        self._logits: F32 = np.zeros((0, 0), np.float32)
        self._tokens = np.zeros(0, np.int32)
        self._finite = np.zeros(0, np.bool_)

    def run(self, step: StepDescriptor) -> StepOutput:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for op in self._plan.ops:
                self._run(op, step)
        return StepOutput(self._tokens, self._finite)

    def logits(self, count: int) -> F32:
        return self._logits[:count]

    def _run(self, op: ops.Op, step: StepDescriptor) -> None:
        match op:
            case ops.Embed():
                self._set(op.x, op.table.rows(self._input_ids(step)))  # type: ignore[attr-defined]
            case ops.RopeTable():
                angle = step["position"][: step.rows, None] * np.array(op.inv_freq)
                table = np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
                self._set(op.rope, table * np.float32(op.scale))
            case ops.Qkv():
                self._qkv(op, step)
            case ops.Attention():
                self._attention(op, step)
            case ops.Project():
                self._set(op.x, self._get(op.x) + _multiply(op.weight, self._get(op.source)))
            case ops.GateUp():
                y = rms_norm(self._get(op.x), _data(op.norm), op.eps)
                self._set(op.out, silu(_multiply(op.gate, y)) * _multiply(op.up, y))
            case ops.Head():
                x = self._get(op.x)[step["sample_row"][: step.samples]]
                self._logits = _multiply(op.weight, rms_norm(x, _data(op.norm), op.eps)) if len(x) else x
            case ops.Sample():
                self._sample(step)

    def _input_ids(self, step: StepDescriptor) -> NDArray[np.int32]:
        token, seq = step["token"][: step.rows], step["seq"][: step.rows]
        return np.where(token == RELAY, self._relay[step["relay_slot"][seq]], token).astype(np.int32)

    def _qkv(self, op: ops.Qkv, step: StepDescriptor) -> None:
        kv, rows, rope = op.kv, step.rows, self._get(op.rope)
        y = rms_norm(self._get(op.x), _data(op.norm), op.eps)
        q = _multiply(op.q_proj, y).reshape(rows, op.heads, kv.head_dim)
        k = _multiply(op.k_proj, y).reshape(rows, kv.kv_heads, kv.head_dim)
        v = _multiply(op.v_proj, y).reshape(rows, kv.kv_heads, kv.head_dim)
        if op.q_norm is not None and op.k_norm is not None:
            q, k = rms_norm(q, _data(op.q_norm), op.eps), rms_norm(k, _data(op.k_norm), op.eps)
        q, k = rotate(q, rope), rotate(k, rope)
        self._set(op.q, (round_bf16(q) if kv.dtype == "bf16" else q).reshape(rows, -1))
        self._pages_of(kv).write(op.layer, step["slot"][:rows], k, v)

    def _attention(self, op: ops.Attention, step: StepDescriptor) -> None:
        kv, pages = op.kv, self._pages_of(op.kv)
        q = self._get(op.q).reshape(step.rows, kv.kv_heads, op.heads // kv.kv_heads, kv.head_dim)
        blocks, table = step["blocks"], step["table"][step["seq"][: step.rows]]
        out = [
            attend(pages, op.layer, q[row], int(position) + 1, blocks[int(first) :], op.scale).reshape(-1)
            for row, (position, first) in enumerate(zip(step["position"][: step.rows], table, strict=True))
        ]
        self._set(op.out, np.stack(out))

    def _sample(self, step: StepDescriptor) -> None:
        n = step.samples
        self._tokens, self._finite = np.zeros(n, np.int32), np.isfinite(self._logits).all(axis=-1)[:n]
        for i in range(n):
            row = int(step["sample_row"][i])
            if self._finite[i]:
                self._tokens[i] = sample(
                    self._logits[i], temperature=float(step["temperature"][i]), top_k=int(step["top_k"][i]),
                    top_p=float(step["top_p"][i]), min_p=float(step["min_p"][i]), seed=_seed(step, i),
                    position=int(step["position"][row]) + 1, choice=int(step["choice"][i]))
            self._relay[step["relay_slot"][step["seq"][row]]] = self._tokens[i]

    def _pages_of(self, kv: Any) -> Pages:
        if kv not in self._pages:
            self._pages[kv] = Pages(self._pool, kv)
        return self._pages[kv]

    def _get(self, buffer: Buffer) -> F32:
        return self._values[buffer.name]

    def _set(self, buffer: Buffer, value: F32) -> None:
        self._values[buffer.name] = value


def _multiply(weight: Any, x: F32) -> F32:
    return weight.multiply(x)  # type: ignore[no-any-return]


def _data(vector: Any) -> F32:
    return vector.data  # type: ignore[no-any-return]


def _seed(step: StepDescriptor, i: int) -> int:
    return (int(step["seed_hi"][i]) & 0xFFFFFFFF) << 32 | int(step["seed_lo"][i]) & 0xFFFFFFFF
