"""A plan compiled to native operations.

Replay hands the whole plan to one call, or each segment where the host acts between them; eager makes one call an
operation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drut.kernels import ops
from drut.kernels.backend import Executable, Host, Limits
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.native import abi
from drut.kernels.native.burst import NativeBurst
from drut.kernels.native.forms import forms_of
from drut.kernels.native.memory import reserve
from drut.kernels.native.routes import NativeRoutes
from drut.kernels.ops import F32, Buffer
from drut.kernels.output import StepOutput
from drut.kernels.plan import Plan
from drut.kernels.weight import padded

if TYPE_CHECKING:
    from drut.kernels.native.backend import NativeBackend


Call = tuple[int, int]  # address of the first operation's pointer, and how many


class NativeExecutable(Executable):
    """Holds the activations, the compiled operations and the context the native side reads."""

    def __init__(self, backend: NativeBackend, plan: Plan, pools: Sequence[NDArray[np.uint8]], limits: Limits) -> None:
        self._backend, self._limits, self._pools = backend, limits, tuple(pools)
        self._buffers: dict[str, F32] = {}
        self._routes = NativeRoutes(limits.rows)
        self.plan = plan  # the compiled operations point into its weights
        self._keep: list[Any] = []
        head, widest = _measure(plan)
        self._vocab = head.weight.n
        self._logits = reserve(limits.samples * padded(self._vocab) * 4).view(np.float32).reshape(limits.samples, -1)
        self._out = StepOutput.zeros(limits.samples)
        self._relay = np.zeros(limits.relay_slots, np.int32)
        self._context = self._make_context(widest)
        self.op_ns = np.zeros(len(plan.ops), np.int64)
        self._forms = forms_of(plan)
        compiled = [self._compile(op) for op in plan.ops]
        addresses = [ctypes.addressof(op) for op in compiled]
        self._keep.append(compiled)
        size = len(addresses)
        self._all = (ctypes.c_void_p * size)(*addresses)
        self._whole = self._calls(0, size)
        self._segments: list[tuple[list[Call], str | None]] = []
        samplings = [i for i, op in enumerate(plan.ops) if isinstance(op, ops.Sample)]
        self._sampling = [call for i in samplings for call in self._calls(i, i + 1)]
        begin = 0
        for segment in plan.segments:
            self._segments.append((self._calls(begin, begin + len(segment.ops)), segment.stop))
            begin += len(segment.ops)

    def _calls(self, begin: int, end: int) -> list[Call]:
        step = 1 if self._backend.execution == "eager" else max(end - begin, 1)
        return [(ctypes.addressof(self._all) + 8 * i, min(step, end - i)) for i in range(begin, end, step)]

    def _make_context(self, widest: int) -> abi.Context:
        backend, limits = self._backend, self._limits
        lib = backend.library
        most = max(limits.rows, limits.samples)  # a row may be sampled more than once
        acts = reserve(most * lib.drut_act_row_bytes(backend.isa_handle, widest))
        pairs = limits.rows * max((op.routes.top_k for op in self.plan.ops if isinstance(op, ops.Route)), default=0)
        scratch_bytes = lib.drut_scratch_bytes(backend.isa_handle, widest, self._vocab, min(pairs, limits.rows), pairs)
        scratch = reserve(backend.threads * scratch_bytes)
        self._keep += [acts, scratch]
        out = self._out
        pages = (abi.Pages * len(self._pools))(*(abi.Pages(p.ctypes.data, p.shape[1]) for p in self._pools))
        self._keep.append(pages)
        return abi.Context(None, ctypes.addressof(pages), acts.ctypes.data, acts.nbytes,
                           scratch.ctypes.data, scratch_bytes, out.tokens.ctypes.data, out.status.ctypes.data,
                           out.logprobs.ctypes.data, out.ranks.ctypes.data, out.top_ids.ctypes.data,
                           out.top_logprobs.ctypes.data, self._relay.ctypes.data, None)

    def time_operations(self, on: bool) -> None:
        """Fills `op_ns` with each operation's nanoseconds on every run. Replay without a host only."""
        self._context.op_ns = self.op_ns.ctypes.data if on else None

    def run(self, step: StepDescriptor, host: Host | None = None) -> StepOutput:
        self._context.step = step.buffer.ctypes.data
        if host is None:
            self._call(self._whole)
        else:
            for calls, stop in self._segments:
                self._call(calls)
                if stop is not None:
                    host(stop)
        n, out = step.samples, self._out
        return StepOutput(out.tokens[:n], out.status[:n], out.logprobs[:n], out.ranks[:n], out.top_ids[:n],
                          out.top_logprobs[:n])

    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        chosen = np.array(samples, np.int32)
        context = abi.Context.from_buffer_copy(self._context)  # of which another thread may make a burst meanwhile
        context.step, context.op_ns = step.buffer.ctypes.data, None
        context.chosen, context.chosen_count = chosen.ctypes.data, len(chosen)
        self._call(self._sampling, context)

    def burst(self, steps: int, ends: Sequence[Sequence[int]]) -> Burst:
        if self._backend.execution == "eager":
            return super().burst(steps, ends)
        return NativeBurst(self._backend.library, self._context, steps, ends)

    def run_burst(self, step: StepDescriptor, burst: Burst) -> None:
        if not isinstance(burst, NativeBurst):
            return super().run_burst(step, burst)
        burst.context.step = step.buffer.ctypes.data
        backend, ((address, count),) = self._backend, self._whole
        backend.library.drut_run_burst(backend.workers, backend.isa_handle, address, count,
                                       ctypes.byref(burst.context), burst.address)

    def run_empty(self, step: StepDescriptor) -> None:
        """Walks the plan as `run` does, but no operation computes anything: what replay itself costs."""
        self._context.step = step.buffer.ctypes.data
        self._context.empty = 1
        self._call(self._whole)
        self._context.empty = 0

    def _call(self, calls: list[Call], context: abi.Context | None = None) -> None:
        reads, backend = ctypes.byref(context or self._context), self._backend
        for address, count in calls:
            backend.library.drut_run(backend.workers, backend.isa_handle, address, count, reads)

    def logits(self, count: int) -> F32:
        return self._logits[:count, : self._vocab]

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        return self._routes.loads()

    def used_experts(self) -> tuple[int, ...]:
        return self._routes.used()

    def _buffer(self, buffer: Buffer) -> tuple[int, int]:
        """Address and stride in floats."""
        width = padded(buffer.width)
        if buffer.name not in self._buffers:
            rows = self._limits.rows * buffer.copies
            self._buffers[buffer.name] = reserve(rows * width * 4).view(np.float32).reshape(-1, width)
        array = self._buffers[buffer.name]
        assert array.shape[1] == width, f"buffer {buffer.name} has one width"
        return array.ctypes.data, width

    def _compile(self, op: ops.Op) -> ctypes.Structure:
        match op:
            case ops.Embed():
                x, stride = self._buffer(op.x)
                return abi.Embed(abi.Op(abi.EMBED, 0), _address(op.table), x, stride, op.scale)
            case ops.RopeTable():
                freq = np.array(op.inv_freq, np.float64)
                self._keep.append(freq)
                rope, _ = self._rope(op.rope)
                return abi.RopeTable(abi.Op(abi.ROPE_TABLE, 0), freq.ctypes.data, rope, len(freq), op.scale)
            case ops.Qkv():
                x, stride = self._buffer(op.x)
                return self._compile_qkv(abi.QKV, op, op.norm, (op.q_proj, op.k_proj, op.v_proj), x, op.x.width, stride)
            case ops.StoreQkv():
                return self._compile_qkv(abi.STORE_QKV, op, None, (None, None, None), None, 0, 0)
            case ops.Normalize():
                x, stride = self._buffer(op.x)
                out, out_stride = self._buffer(op.out)
                return abi.Normalize(abi.Op(abi.NORMALIZE, op.layer), x, _norm(op.norm), out, op.x.width, stride,
                                     out_stride, 0)
            case ops.Activate():
                gate = self._buffer(op.gate)[0] if op.gate else None
                up, stride = self._buffer(op.up)
                out, _ = self._buffer(op.out)
                return abi.Activate(abi.Op(abi.ACTIVATE, op.layer), gate, up, out, stride,
                                    abi.ACTIVATIONS[op.activation])
            case ops.Attention():
                q, q_stride = self._buffer(op.q)
                out, out_stride = self._buffer(op.out)
                return abi.Attention(abi.Op(abi.ATTENTION, op.layer), q, out, _address(op.sinks), q_stride, out_stride,
                                     op.heads, op.kv.kv_heads, op.kv.head_dim, abi.KV_DTYPES[op.kv.dtype], op.scale,
                                     self._forms[op], op.window, op.cap, op.kv.group, 0,
                                     op.kv.offset(op.layer))
            case ops.Project():
                source, in_stride = self._buffer(op.source)
                x, stride = self._buffer(op.x)
                row_scale = None if op.shared is None else self._routes.shared(op.shared)
                return abi.Project(abi.Op(abi.PROJECT, op.layer), source, _address(op.weight), x, row_scale, in_stride,
                                   stride, self._forms[op], op.add, op.scale, 0)
            case ops.Add():
                source, in_stride = self._buffer(op.source)
                x, stride = self._buffer(op.x)
                return abi.Add(abi.Op(abi.ADD, op.layer), source, _norm(op.norm), x, op.x.width, in_stride, stride,
                               op.scale)
            case ops.GateUp():
                x, stride = self._buffer(op.x)
                out, out_stride = self._buffer(op.out)
                return abi.GateUp(abi.Op(abi.GATE_UP, op.layer), x, _norm(op.norm), _address(op.gate), _address(op.up),
                                  out, op.x.width, stride, out_stride, self._forms[op],
                                  abi.ACTIVATIONS[op.activation], 0)
            case ops.Route():
                return self._compile_route(op)
            case ops.ExpertsGateUp():
                x, stride = self._buffer(op.x)
                out, out_stride = self._buffer(op.out)
                return abi.ExpertsGateUp(abi.Op(abi.EXPERTS_GATE_UP, op.layer), x, _norm(op.norm), _address(op.gate),
                                         _address(op.up), self._routes.address(op.routes), out, op.x.width, stride,
                                         out_stride, self._forms[op], abi.ACTIVATIONS[op.activation], 0)
            case ops.ExpertsDown():
                source, in_stride = self._buffer(op.source)
                x, stride = self._buffer(op.x)
                return abi.ExpertsDown(abi.Op(abi.EXPERTS_DOWN, op.layer), source, _address(op.down),
                                       self._routes.address(op.routes), x, in_stride, stride, self._forms[op], 0)
            case ops.Head():
                x, stride = self._buffer(op.x)
                return abi.Head(abi.Op(abi.HEAD, 0), x, _norm(op.norm), _address(op.weight), self._logits.ctypes.data,
                                op.x.width, stride, self._logits.shape[1], op.scale, op.cap, 0)
            case ops.Sample():
                return abi.Sample(abi.Op(abi.SAMPLE, 0), self._logits.ctypes.data, self._logits.shape[1], op.vocab)

    def _compile_qkv(self, code: int, op: ops.Qkv | ops.StoreQkv, norm: ops.Norm | None, projections: Sequence[Any],
                     x: int | None, width: int, stride: int) -> ctypes.Structure:
        q, q_stride = self._buffer(op.q)
        k, kv_stride = self._buffer(op.k)
        v, _ = self._buffer(op.v)
        rope, half = self._rope(op.rope) if op.rope else (None, 0)
        growth, span = op.growth or (0.0, 0)
        return abi.Qkv(abi.Op(code, op.layer), x, _norm(norm), _norm(op.q_norm), _norm(op.k_norm),
                       *map(_address, projections), rope, q, k, v, width, stride, q_stride, kv_stride,
                       op.heads, op.kv.kv_heads, op.kv.head_dim, half, abi.KV_DTYPES[op.kv.dtype], op.wide_norm,
                       span, growth, op.kv.group, 0, op.kv.offset(op.layer))

    def _compile_route(self, op: ops.Route) -> ctypes.Structure:
        x, stride = self._buffer(op.x)
        logits, logits_stride = self._buffer(Buffer("router_logits", op.routing.experts))
        loads, used = self._routes.counters(op.layer, op.routing.experts)
        how = op.routing
        return abi.Route(abi.Op(abi.ROUTE, op.layer), x, _norm(op.norm), _address(op.weight), _address(op.correction),
                         _address(op.shared_gate), logits, self._routes.address(op.routes), loads, used, op.x.width,
                         stride, logits_stride, how.sigmoid, how.normalize, how.groups, how.kept_groups, how.scale, 0)

    def _rope(self, buffer: Buffer) -> tuple[int, int]:
        """Address of the rows' table, unpadded, and half its width."""
        address, _ = self._buffer(buffer)
        return address, buffer.width // 2


def _address(item: Any) -> int | None:
    return None if item is None else item.address


def _norm(norm: ops.Norm | None) -> abi.Norm:
    if norm is None:
        return abi.Norm(None, None, 0.0, 0)
    return abi.Norm(_address(norm.weight), _address(norm.bias), norm.eps, norm.centred)


def _measure(plan: Plan) -> tuple[ops.Head, int]:
    """The plan's head, and the widest input any of its matrices takes."""
    head: ops.Head | None = None
    widest = 0
    for op in plan.ops:
        if isinstance(op, ops.Head):
            head = op
        for value in vars(op).values():
            if hasattr(value, "encoding"):
                widest = max(widest, padded(value.k))
    assert head is not None, "every plan ends in a head"
    return head, widest
