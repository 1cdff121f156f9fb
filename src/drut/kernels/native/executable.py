"""A plan compiled to native operations.

Step replay runs the whole plan in one call, or one call per segment if the host acts between segments; eager runs one
call per operation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drut.kernels import ops
from drut.kernels.backend import BackendLimits, Executable, Host
from drut.kernels.burst import Burst
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.native import abi
from drut.kernels.native.activation_formats import activation_formats
from drut.kernels.native.burst import NativeBurst
from drut.kernels.native.compile.table import codes as operation_codes
from drut.kernels.native.compile.table import compiled
from drut.kernels.native.outputs import OutputSet, OutputSets
from drut.kernels.native.step_memory import StepMemory
from drut.kernels.native.workspace import Workspace
from drut.kernels.ops import F32, Buffer
from drut.kernels.output import StepOutput
from drut.kernels.pending import Pending
from drut.kernels.plan import Plan
from drut.kernels.weight import padded

if TYPE_CHECKING:
    from drut.kernels.native.backend import NativeBackend


Call = tuple[int, int]  # address of the first operation's pointer, number of operations


class NativeExecutable(Executable):
    """Owns activations, compiled operations and the context that the native side reads. Runs one step at a time."""

    def __init__(self, backend: NativeBackend, plan: Plan, pools: Sequence[NDArray[np.uint8]], limits: BackendLimits,
                 shared_with: NativeExecutable | None = None) -> None:
        self._backend, self._limits, self._pools = backend, limits, tuple(pools)
        self.plan = plan  # the compiled operations point into its weights
        self._keep: list[Any] = []
        head, widest = _measure(plan)
        self._vocab = head.weight.n
        self._step_memory: StepMemory = shared_with._step_memory if shared_with is not None else StepMemory()
        logits = self._step_memory.take(("logits", self._vocab), limits.samples * padded(self._vocab) * 4)
        self._logits = logits.view(np.float32).reshape(limits.samples, -1)
        self._outputs = OutputSets()
        self._last: OutputSet | None = None  # outputs of the last step: `_context` points to them, `redraw` writes them
        self._relay: NDArray[np.int32] = (
            np.zeros(limits.relay_slots, np.int32) if shared_with is None else shared_with._relay)
        assert len(self._relay) >= limits.relay_slots, "executables that share relay slots run the same sequences"
        self._context = self._make_context(widest)
        self.op_ns = np.zeros(len(plan.ops), np.int64)
        self.workspace = Workspace(limits.rows, self._logits, activation_formats(plan), self._step_memory)
        codes = operation_codes(backend.library)
        structs = [compiled(op, self.workspace, codes) for op in plan.ops]
        addresses = [ctypes.addressof(struct) for struct in structs]
        self._keep.append(structs)
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

    def _make_context(self, widest: int) -> abi.ContextArgs:
        backend, limits = self._backend, self._limits
        lib = backend.library
        max_rows = max(limits.rows, limits.samples)  # a row may be sampled more than once
        acts = self._step_memory.take("acts", max_rows * lib.drut_act_row_bytes(backend.isa_handle, widest))
        pairs = limits.rows * max((op.routes.top_k for op in self.plan.ops if isinstance(op, ops.Route)), default=0)
        scratch_bytes = lib.drut_scratch_bytes(backend.isa_handle, widest, self._vocab, min(pairs, limits.rows), pairs)
        scratch = self._step_memory.take("scratch", backend.threads * scratch_bytes)
        self._keep += [acts, scratch]
        pages = (abi.PagesArgs * len(self._pools))(*(abi.PagesArgs(data=p.ctypes.data, page_bytes=p.shape[1])
                                                     for p in self._pools))
        self._keep.append(pages)
        return abi.ContextArgs(step=None, pages=ctypes.addressof(pages), acts=acts.ctypes.data, acts_bytes=acts.nbytes,
                               scratch=scratch.ctypes.data, scratch_bytes=scratch_bytes,
                               **dict.fromkeys(StepOutput._fields),
                               relay=self._relay.ctypes.data, op_ns=None, chosen=None, chosen_count=0, barriers_only=0)

    def time_operations(self, on: bool) -> None:
        """Makes every run write the nanoseconds of each operation to `op_ns`. Replay without a host only."""
        self._context.op_ns = self.op_ns.ctypes.data if on else None

    def launch(self, step: StepDescriptor, host: Host | None = None) -> Pending:
        self._context.step = step.address
        outputs = self._outputs.take(step.samples)
        if outputs is not self._last:
            outputs.point(self._context)
            self._last = outputs
        if host is None:
            self._call(self._whole)
        else:
            for calls, stop in self._segments:
                self._call(calls)
                if stop is not None:
                    host(stop)
        return outputs

    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        chosen = np.array(samples, np.int32)
        context = abi.ContextArgs.from_buffer_copy(self._context)  # another thread may copy the original for a burst
        context.step, context.op_ns = step.address, None
        context.chosen, context.chosen_count = chosen.ctypes.data, len(chosen)
        self._call(self._sampling, context)

    def burst(self, steps: int, ends: Sequence[Sequence[int]]) -> Burst:
        if self._backend.execution == "eager":
            return super().burst(steps, ends)
        return NativeBurst(self._backend.library, self._context, steps, ends)

    def run_burst(self, step: StepDescriptor, burst: Burst) -> None:
        if not isinstance(burst, NativeBurst):
            return super().run_burst(step, burst)
        burst.context.step = step.address
        backend, ((address, count),) = self._backend, self._whole
        backend.library.drut_run_burst(backend.workers, backend.isa_handle, address, count,
                                       ctypes.byref(burst.context), burst.address)

    def run_empty(self, step: StepDescriptor) -> None:
        """Runs only the barriers of the plan: measures the cost of replay itself."""
        self._context.step = step.address
        self._context.barriers_only = 1
        self._call(self._whole)
        self._context.barriers_only = 0

    def _call(self, calls: list[Call], context: abi.ContextArgs | None = None) -> None:
        reads, backend = ctypes.byref(context or self._context), self._backend
        for address, count in calls:
            backend.library.drut_run(backend.workers, backend.isa_handle, address, count, reads)

    def logits(self, count: int) -> F32:
        return self._logits[:count, : self._vocab]

    def rows(self, buffer: Buffer, count: int) -> F32:
        return self.workspace.buffers[buffer][:count, : buffer.width]

    def fill(self, buffer: Buffer, rows: F32) -> None:
        self.workspace.buffers[buffer][: len(rows), : buffer.width] = rows

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        return self.workspace.routes.loads()

    def used_experts(self) -> tuple[int, ...]:
        return self.workspace.routes.used()


def _measure(plan: Plan) -> tuple[ops.Head, int]:
    """Returns the plan's head, and the widest input of its matrices."""
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
