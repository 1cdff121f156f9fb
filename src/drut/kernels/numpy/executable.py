"""Runs a plan in NumPy, one operation after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drut.kernels import ops
from drut.kernels.backend import Executable, Host, Limits
from drut.kernels.descriptor import RELAY, Edits, StepDescriptor
from drut.kernels.numpy import experts, sampling
from drut.kernels.numpy.attention import Pages, attend
from drut.kernels.numpy.numbers import ACTIVATIONS, capped, layer_norm, rms_norm, rotate, round_bf16
from drut.kernels.ops import F32, Buffer
from drut.kernels.output import Status, StepOutput
from drut.kernels.plan import Plan


class NumpyExecutable(Executable):
    """Buffers live for one step; the relay lives on."""

    def __init__(self, plan: Plan, pools: Sequence[NDArray[np.uint8]], limits: Limits) -> None:
        self._plan, self._pools = plan, pools
        self._relay = np.zeros(limits.relay_slots, np.int32)
        self._pages: dict[Any, Pages] = {}
        self._values: dict[str, F32] = {}
        self._logits: F32 = np.zeros((0, 0), np.float32)
        self._routes: dict[ops.Routes, experts.Routed] = {}
        self._loads: dict[int, NDArray[np.int64]] = {}
        self._used: dict[int, int] = {}
        self._out = StepOutput.zeros(0)

    def run(self, step: StepDescriptor, host: Host | None = None) -> StepOutput:
        for segment in self._plan.segments:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                for op in segment.ops:
                    self._run(op, step)
            if host is not None and segment.stop is not None:
                host(segment.stop)
        return self._out

    def logits(self, count: int) -> F32:
        return self._logits[:count]

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        return {layer: counts.copy() for layer, counts in self._loads.items()}

    def used_experts(self) -> tuple[int, ...]:
        return tuple(self._used.get(layer, 0) for layer in range(max(self._used, default=-1) + 1))

    def _run(self, op: ops.Op, step: StepDescriptor) -> None:
        match op:
            case ops.Embed():
                rows: F32 = op.table.rows(self._input_ids(step))  # type: ignore[attr-defined]
                self._set(op.x, rows * np.float32(op.scale))
            case ops.RopeTable():
                angle = step["position"][: step.rows, None] * np.array(op.inv_freq)
                table = np.concatenate([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)
                self._set(op.rope, table * np.float32(op.scale))
            case ops.Qkv():
                y = _normalized(op.norm, self._get(op.x))
                for buffer, weight in ((op.q, op.q_proj), (op.k, op.k_proj), (op.v, op.v_proj)):
                    self._set(buffer, _multiply(weight, y))
                self._store_qkv(op, step)
            case ops.Normalize():
                self._set(op.out, _normalized(op.norm, self._get(op.x)))
            case ops.StoreQkv():
                self._store_qkv(op, step)
            case ops.Attention():
                self._attention(op, step)
            case ops.Project():
                y = _multiply(op.weight, self._get(op.source))
                if op.shared is not None:
                    y = y * self._routes[op.shared].shared
                self._set(op.x, self._get(op.x) + np.float32(op.scale) * y if op.add else y)
            case ops.Add():
                y = _normalized(op.norm, self._get(op.source))
                self._set(op.x, self._get(op.x) + np.float32(op.scale) * y)
            case ops.GateUp():
                y, activate = _normalized(op.norm, self._get(op.x)), ACTIVATIONS[op.activation]
                up = _multiply(op.up, y)
                self._set(op.out, activate(up) if op.gate is None else activate(_multiply(op.gate, y)) * up)
            case ops.Activate():
                up, activate = self._get(op.up), ACTIVATIONS[op.activation]
                self._set(op.out, activate(up) if op.gate is None else activate(self._get(op.gate)) * up)
            case ops.Route():
                self._route(op)
            case ops.ExpertsGateUp():
                y = _normalized(op.norm, self._get(op.x))
                self._set(op.out, experts.gate_up(op, y, self._routes[op.routes]))
            case ops.ExpertsDown():
                y = experts.down(op, self._get(op.source), self._routes[op.routes])
                self._set(op.x, self._get(op.x) + y)
            case ops.Head():
                x = self._get(op.x)[step["sample_row"][: step.samples]]
                if len(x):
                    x = capped(_multiply(op.weight, _normalized(op.norm, x)) * np.float32(op.scale), op.cap)
                self._logits = x
            case ops.Sample():
                self._sample(step)

    def _input_ids(self, step: StepDescriptor) -> NDArray[np.int32]:
        token, seq = step["token"][: step.rows], step["seq"][: step.rows]
        return np.where(token == RELAY, self._relay[step["relay_slot"][seq]], token).astype(np.int32)

    def _store_qkv(self, op: ops.Qkv | ops.StoreQkv, step: StepDescriptor) -> None:
        kv, rows = op.kv, step.rows
        q, k, v = (self._get(buffer) for buffer in (op.q, op.k, op.v))
        if op.wide_norm:
            q, k = _normalized(op.q_norm, q), _normalized(op.k_norm, k)
        q = q.reshape(rows, op.heads, kv.head_dim)
        k, v = (x.reshape(rows, kv.kv_heads, kv.head_dim) for x in (k, v))
        if not op.wide_norm:
            q, k = _normalized(op.q_norm, q), _normalized(op.k_norm, k)
        if op.rope is not None:
            q, k = rotate(q, self._get(op.rope)), rotate(k, self._get(op.rope))
        if op.growth is not None:
            amount, span = op.growth
            log = np.log((1 + step["position"][:rows] // span).astype(np.float32))
            q = q * (np.float32(1) + np.float32(amount) * log)[:, None, None]
        self._set(op.q, (round_bf16(q) if kv.dtype == "bf16" else q).reshape(rows, -1))
        self._pages_of(kv).write(kv.place(op.layer), step.slots(kv.group), k, v)

    def _route(self, op: ops.Route) -> None:
        y = _normalized(op.norm, self._get(op.x))
        correction = None if op.correction is None else _data(op.correction)
        gate = None if op.shared_gate is None else _data(op.shared_gate)
        routed = experts.choose(op.routing, _multiply(op.weight, y), correction, experts.shared_weight(y, gate))
        self._routes[op.routes] = routed
        counts = np.bincount(routed.expert.ravel(), minlength=op.routing.experts)
        self._loads[op.layer] = self._loads.get(op.layer, np.zeros(op.routing.experts, np.int64)) + counts
        self._used[op.layer] = int(np.count_nonzero(counts))

    def _attention(self, op: ops.Attention, step: StepDescriptor) -> None:
        kv, pages = op.kv, self._pages_of(op.kv)
        q = self._get(op.q).reshape(step.rows, kv.kv_heads, op.heads // kv.kv_heads, kv.head_dim)
        blocks, table = step["blocks"], step.tables(kv.group)[step["seq"][: step.rows]]
        out = [
            attend(pages, op, q[row], int(position) + 1, blocks[int(first) :]).reshape(-1)
            for row, (position, first) in enumerate(zip(step["position"][: step.rows], table, strict=True))
        ]
        self._set(op.out, np.stack(out))

    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        for said, blank in zip(self._out, StepOutput.zeros(len(samples)), strict=True):
            said[list(samples)] = blank
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self._draw(step, samples)

    def _sample(self, step: StepDescriptor) -> None:
        self._out = StepOutput.zeros(step.samples)
        self._draw(step, range(step.samples))

    def _draw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        for i in samples:
            logits = self._logits[i]
            row, target = int(step["sample_row"][i]), int(step["target"][i])
            status = Status.DRAWN if np.isfinite(logits).all() else Status.NOT_FINITE
            token = max(target, 0)
            if status is Status.DRAWN and target < 0:
                z = _allowed(_edited(logits, step, i), step, i)
                status = Status.DRAWN if np.isfinite(z.max()) else Status.NONE_LEFT
                token = _draw(z, step, i) if status is Status.DRAWN else 0
            if target < 0:
                self._relay[step["relay_slot"][step["seq"][row]]] = token
            self._out.tokens[i], self._out.status[i] = token, status
            if status is Status.DRAWN and step["top_logprobs"][i] >= 0:
                self._report(i, logits, token, int(step["top_logprobs"][i]))

    def _report(self, i: int, logits: F32, token: int, wanted: int) -> None:
        out, logprobs = self._out, sampling.logprobs(logits)
        out.logprobs[i], out.ranks[i] = logprobs[token], sampling.rank(logits, token)
        top = sampling.by_value(logits)[:wanted]
        out.top_ids[i, : len(top)], out.top_logprobs[i, : len(top)] = top, logprobs[top]

    def _pages_of(self, kv: Any) -> Pages:
        if kv not in self._pages:
            self._pages[kv] = Pages(self._pools[kv.group], kv)
        return self._pages[kv]

    def _get(self, buffer: Buffer) -> F32:
        return self._values[buffer.name]

    def _set(self, buffer: Buffer, value: F32) -> None:
        self._values[buffer.name] = value


def _multiply(weight: Any, x: F32) -> F32:
    return weight.multiply(x)  # type: ignore[no-any-return]


def _data(vector: Any) -> F32:
    return vector.data  # type: ignore[no-any-return]


def _normalized(norm: ops.Norm | None, x: F32) -> F32:
    if norm is None:
        return x
    y = (layer_norm if norm.centred else rms_norm)(x, _data(norm.weight), norm.eps)
    return y if norm.bias is None else y + _data(norm.bias)


def _edited(logits: F32, step: StepDescriptor, i: int) -> F32:
    listed = slice(step["edit_first"][i], step["edit_first"][i] + step["edit_count"][i])
    edits = Edits(step["edit_id"][listed], step["edit_bias"][listed], step["edit_count_out"][listed],
                  step["edit_seen"][listed])
    return sampling.edited(logits, edits, repetition=step["repetition"][i], presence=step["presence"][i],
                           frequency=step["frequency"][i])


def _allowed(z: F32, step: StepDescriptor, i: int) -> F32:
    first = int(step["mask"][i])
    return z if first < 0 else sampling.allowed(z, step.mask(first, len(z)))


def _draw(z: F32, step: StepDescriptor, i: int) -> int:
    seed = (int(step["seed_hi"][i]) & 0xFFFFFFFF) << 32 | int(step["seed_lo"][i]) & 0xFFFFFFFF
    position = int(step["position"][step["sample_row"][i]]) + 1
    return sampling.sample(z, temperature=float(step["temperature"][i]), top_k=int(step["top_k"][i]),
                           top_p=float(step["top_p"][i]), min_p=float(step["min_p"][i]), seed=seed, position=position,
                           choice=int(step["choice"][i]))
