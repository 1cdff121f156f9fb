"""Single kernels under the clock, as a process that is asked by JSON lines (`worker.py`).

{"do": "load", "threads": N, "isa": NAME}                       -> {"isa": name, "source": the drut that it is}
{"do": "gemm", "kind": ENCODING, "n": N, "k": K, "rows": R, "seconds": S}
{"do": "attention", "heads": H, "kv_heads": H, "head_dim": D, "kv_dtype": NAME, "context": C, "rows": R, "seconds": S}
    -> {"seconds": s, "bytes": b, "macs": by class, "working_set": w}   of one operation: the best of its runs

An operation's weights or keys are used together with those of others, a model's worth, so that they come from memory
as they do in a model. Bytes of weights are the file's, not the packing's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from benchmarks.worker import Answer, serve
from numpy.typing import NDArray

import drut
from drut.formats.encoding import Encoding, encoding
from drut.formats.planes import join
from drut.kernels.backend import BackendLimits
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import PAGE_TOKENS, KvLayout
from drut.kernels.native.backend import NativeBackend, NativeMatrix
from drut.kernels.native.executable import NativeExecutable
from drut.kernels.ops import Attention, Buffer, Embed, Head, Norm, Op, Project
from drut.kernels.plan import Recorder

WORKING_SET = 256 << 20  # bytes of weights, or of keys and values: the roof is measured beyond all caches
LAYERS = 16  # maximum for attention
MAX_MACS = 6 * 10**9  # maximum of one run; large operations are repeated less often
MAX_COPIES = 64
SCALES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
          "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,),
          "TQ2_0": (64,)}
"""Positions of a block's fp16 scales; random ones would be infinite."""


class Kernels:
    """The native backend, and the matrices that were timed last. `of`: the operations whose time is the figure of a
    run."""

    def __init__(self, of: Callable[[NDArray[np.int64]], np.floating[Any] | np.integer[Any]] = np.mean) -> None:
        self._of = of

    def load(self, threads: int, isa: str) -> Answer:
        self._backend = NativeBackend(threads, isa)
        self._matrices: tuple[tuple[str, int, int], list[NativeMatrix]] | None = None
        return {"isa": self._backend.isa, "source": drut.__file__}

    def prepare(self, kind: str, n: int, k: int) -> None:
        """Creates the matrices for `gemm`."""
        self._weights(kind, n, k)

    def gemm(self, kind: str, n: int, k: int, rows: int, seconds: float) -> Answer:
        """Times x += source . weight with `rows` rows."""
        weights = self._weights(kind, n, k)[: max(1, MAX_MACS // (rows * n * k))]
        source, x = Buffer("source", k), Buffer("x", n)
        ops: list[Op] = [Embed(self._floats(rows, k), source),
                         *(Project(layer, source, weight, x) for layer, weight in enumerate(weights))]
        took = self._time(ops, x, rows, rows, KvLayout("fp32", 1, 1, 16), seconds)
        nbytes = n * encoding(kind).row_bytes(k)
        return {"seconds": took, "bytes": nbytes, "macs": ops[-1].cost(_sequence(rows, rows).shape()).macs,
                "working_set": nbytes * len(weights)}

    def attention(self, heads: int, kv_heads: int, head_dim: int, kv_dtype: str, context: int, rows: int,
                  seconds: float) -> Answer:
        """Times attention of the last `rows` rows of a sequence of `context` tokens."""
        layer_bytes = KvLayout(kv_dtype, 1, kv_heads, head_dim).token_bytes * context
        layers = max(1, min(LAYERS, WORKING_SET // layer_bytes))
        layout = KvLayout(kv_dtype, layers, kv_heads, head_dim)
        q, out = Buffer("q", heads * head_dim), Buffer("out", heads * head_dim)
        ops: list[Op] = [Embed(self._floats(rows, q.width), q),
                         *(Attention(layer=layer, q=q, out=out, heads=heads, kv=layout,
                                     scale=head_dim**-0.5) for layer in range(layers))]
        took = self._time(ops, q, rows, context, layout, seconds)
        cost = ops[-1].cost(_sequence(rows, context).shape())
        return {"seconds": took, "bytes": cost.bytes, "macs": cost.macs, "working_set": layers * layer_bytes}

    def _time(self, ops: Sequence[Op], x: Buffer, rows: int, context: int, layout: KvLayout, seconds: float) -> float:
        """Returns the best run's mean seconds of the operations after the first, which makes their input."""
        backend, recorder = self._backend, Recorder()
        norm = backend.vector(np.zeros(x.width, np.float32))
        last = backend.matrix(encoding("F32"), np.zeros((1, x.width), np.float32).view(np.uint8), 1, x.width)
        for op in (*ops, Head(x, Norm(norm, 1.0), last)):
            recorder.add(op)
        pages = -(-context // PAGE_TOKENS)
        pool = backend.pool(layout, pages)
        pool.data.reshape(-1).view(np.uint16)[:] = _bf16(pool.data.nbytes // 2)
        executable = NativeExecutable(backend, recorder.finish(), [pool.data], BackendLimits(rows, 1, rows))
        executable.time_operations(True)
        step, timed = _sequence(rows, context), slice(1, len(ops))
        executable.run(step)
        took: list[float] = []
        end = time.perf_counter() + seconds
        while len(took) < 3 or time.perf_counter() < end:
            executable.run(step)
            took.append(float(self._of(executable.op_ns[timed])) * 1e-9)
        return min(took)

    def _weights(self, kind: str, n: int, k: int) -> list[NativeMatrix]:
        """Returns a model's worth of matrices of one shape; keeps those of the last call."""
        if self._matrices is None or self._matrices[0] != (kind, n, k):
            self._matrices = None
            enc = encoding(kind)
            copies = max(1, min(MAX_COPIES, WORKING_SET // (n * enc.row_bytes(k))))
            raw = random_blocks(enc, n, k)
            self._matrices = (kind, n, k), [self._backend.matrix(enc, raw, n, k) for _ in range(copies)]
        return self._matrices[1]

    def _floats(self, rows: int, width: int) -> NativeMatrix:
        values = np.random.default_rng(2).standard_normal((rows, width), np.float32)
        return self._backend.matrix(encoding("F32"), values.view(np.uint8), rows, width)


def random_blocks(enc: Encoding, n: int, k: int) -> NDArray[np.uint8]:
    """Returns a matrix as a file stores it, of random codes with scales of about 0.01."""
    rng = np.random.default_rng(1)
    if not enc.block_bytes:
        return _random_planes(enc, rng, n, k)
    if enc.is_float:
        values = rng.standard_normal((n, k), np.float32)
        if enc.name == "F16":
            return values.astype(np.float16).view(np.uint8)
        return values.view(np.uint8) if enc.name == "F32" else _bf16(n * k).reshape(n, k).view(np.uint8)
    blocks = rng.integers(0, 256, (n, k // enc.block, enc.block_bytes), np.uint8)
    if enc.name == "MXFP4":
        blocks[..., 0] = 120  # 2 ** -7
    for at in SCALES.get(enc.name, ()):
        scales = rng.uniform(0.005, 0.02, blocks.shape[:2]).astype(np.float16)
        blocks[..., at : at + 2] = scales[..., None].view(np.uint8)
    return blocks.reshape(n, -1)


def _random_planes(enc: Encoding, rng: np.random.Generator, n: int, k: int) -> NDArray[np.uint8]:
    codes = rng.integers(0, 255, (n, k * enc.bits // 8), np.uint8)
    if enc.is_float:
        codes[codes & 127 == 127] = 0
    if enc.scale == "e4m3":
        fine = rng.integers(40, 60, (n, k // 16), np.uint8)
        return join(np.full((n, 1), 0.01, np.float32), fine, codes)
    scales = rng.uniform(0.005, 0.02, (n, enc.groups(k))).astype(np.float32)
    stored = {"f16": scales.astype(np.float16), "bf16": scales.view(np.uint32) >> 16, "f32": scales}[enc.scale]
    if enc.scale == "bf16":
        stored = stored.astype(np.uint16)
    zeros = [rng.integers(-8, 8, scales.shape).astype(np.int8)] * (enc.offset == "zero_points")
    return join(stored, *zeros, codes)


def _bf16(count: int) -> NDArray[np.uint16]:
    """Returns random values of about unit size, a few thousand of them repeated."""
    values = np.random.default_rng(3).standard_normal(min(count, 1 << 14), np.float32)
    return np.resize((values.view(np.uint32) >> 16).astype(np.uint16), count)


def _sequence(rows: int, context: int) -> StepDescriptor:
    """Describes one sequence whose last `rows` rows are computed."""
    pages = -(-context // PAGE_TOKENS)
    step = StepDescriptor(rows, 1, 1, pages)
    step.clear()
    step.add_sequence(range(rows), context - rows, range(pages), 0)
    return step


def main() -> None:
    kernels = Kernels()
    actions: dict[str, Any] = {"load": kernels.load, "gemm": kernels.gemm, "attention": kernels.attention}
    serve(actions)


if __name__ == "__main__":
    main()
