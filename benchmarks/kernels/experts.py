"""The cost of experts compared with a dense feed-forward: bytes read and multiply-adds per second of both, in turns.

    python -m benchmarks.kernels.experts [--shape NAME] [--rounds N] [--json] [--model FILE.gguf]

Both are layers of random Q4_0 weights on one thread, timed in that thread's CPU time, which other processes disturb
less than wall-clock time. The dense layer is as wide as the experts of one row together, so that one row reads the same
amount from both. More layers than caches hold take turns, and rows change from step to step. Bytes count only the
experts used. With --model, decoding steps of a whole model are measured instead, with 1 and 8 sequences. Exit code 1 if
one row's experts read at less than 0.8 of the dense layer's rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from benchmarks.report import table
from numpy.typing import NDArray

from drut import LLM, SamplingParams
from drut.formats.encoding import encoding
from drut.kernels.backend import BackendLimits
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import KvLayout
from drut.kernels.native.backend import NativeBackend
from drut.kernels.ops import (
    Buffer,
    Embed,
    ExpertsDown,
    ExpertsGateUp,
    GateUp,
    Head,
    Norm,
    Op,
    Project,
    Route,
    Routes,
    Routing,
)  # fmt: skip
from drut.kernels.plan import Recorder

ROWS, TABLE = (1, 8, 64, 256), 256
MIN = 0.8
Q4 = encoding("Q4_0")


@dataclass(frozen=True)
class Shape:
    hidden: int
    width: int
    experts: int
    top_k: int
    layers: int  # with experts; dense layers have as many bytes


SHAPES = {"qwen3-30b-a3b": Shape(2048, 768, 128, 8, 3), "mixtral-8x7b": Shape(4096, 14336, 8, 2, 1)}


@cache
def weights(n: int, k: int) -> NDArray[np.uint8]:
    """Returns Q4_0 blocks without the code that would give them a mean; the same for all matrices of that shape."""
    rng = np.random.default_rng(2)
    raw = rng.integers(0, 256, (n, Q4.row_bytes(k)), np.uint8)
    raw |= np.where(raw & 15, 0, 8).astype(np.uint8) | np.where(raw & 240, 0, 128).astype(np.uint8)
    raw.reshape(-1, Q4.block_bytes)[:, :2] = np.array([0.004], np.float16).view(np.uint8)
    return raw


class Layers:
    """A plan of feed-forwards only, with experts or dense, over one buffer."""

    def __init__(self, backend: NativeBackend, s: Shape, experts: bool) -> None:
        rng, x = np.random.default_rng(1), Buffer("x", s.hidden)
        norm = Norm(backend.vector(np.ones(s.hidden, np.float32)), 1e-5)

        def floats(n: int, k: int, scale: float = 1.0):
            values = (rng.standard_normal((n, k)) * scale).astype("<f4")
            return backend.matrix(encoding("F32"), values.view(np.uint8), n, k)

        routes, inner = Routes("routes", s.experts, s.top_k), Buffer("inner", s.width, s.top_k)
        wide = Buffer("wide", s.width * s.top_k)
        ops: list[Op] = []
        for layer in range(s.layers if experts else s.layers * s.experts // s.top_k):
            if experts:
                gate, up, down = (backend.stack(Q4, (weights(n, k) for _ in range(s.experts)), s.experts, n, k)
                                  for n, k in ((s.width, s.hidden), (s.width, s.hidden), (s.hidden, s.width)))
                ops += [Route(layer=layer, x=x, norm=norm, weight=floats(s.experts, s.hidden, 0.05),
                              routing=Routing(s.experts, s.top_k), routes=routes),
                        ExpertsGateUp(layer=layer, x=x, norm=norm, gate=gate, up=up, routes=routes, out=inner),
                        ExpertsDown(layer, inner, down, routes, x)]
            else:
                g, u, d = (backend.matrix(Q4, weights(n, k), n, k) for n, k in (
                    (wide.width, s.hidden), (wide.width, s.hidden), (s.hidden, wide.width)))
                ops += [GateUp(layer=layer, x=x, norm=norm, gate=g, up=u, out=wide), Project(layer, wide, d, x)]
        recorder = Recorder()
        for op in (Embed(floats(TABLE, s.hidden), x), *ops, Head(x, norm, floats(1, s.hidden))):
            recorder.add(op)
        self.count, self._ops = sum(isinstance(op, GateUp | Route) for op in ops), ops
        pool = backend.pool(KvLayout("fp32", 1, 1, 16), TABLE // 16)
        self._executable = backend.load(recorder.finish(), [pool], BackendLimits(TABLE, 1, TABLE))
        self._step, self._turn = StepDescriptor(TABLE, TABLE, 1, TABLE), 0

    def run(self, rows: int) -> tuple[float, float, float]:
        """Returns CPU seconds per layer, and bytes and multiply-adds per second."""
        self._turn += 1
        self._step.clear()
        tokens = [(7 * i + 31 * self._turn) % TABLE for i in range(rows)]
        self._step.add_sequence(tokens, 0, range(-(-rows // 16)), 0)
        began = time.thread_time()
        self._executable.run(self._step)
        seconds = time.thread_time() - began
        shape = self._step.shape()._replace(used_experts=self._executable.used_experts())
        costs = [op.cost(shape) for op in self._ops]
        return seconds / self.count, sum(c.bytes for c in costs) / seconds, sum(sum(c.macs) for c in costs) / seconds


def whole_model(path: str) -> None:
    """Prints the best of a few decoding steps of 1 and 8 sequences, with the ledger's bytes by kind of operation."""
    rng, rows = np.random.default_rng(1), []
    params = SamplingParams(max_tokens=12, ignore_eos=True, temperature=0)
    with LLM(path, threads=1, kv_cache_gb=0.3, overlap=False, max_batch_tokens=128) as llm:
        runner, engine = llm.engine.runner, llm.engine
        for batch in (1, 8):
            for _ in range(batch):
                llm.submit(rng.integers(0, llm.files.spec.vocab, 16).tolist(), params)
            steps = []
            while engine.busy:
                began = time.thread_time()
                engine.step()
                seconds = time.thread_time() - began
                if runner.last_shape.rows == batch:
                    steps.append((seconds, runner.last_shape))
            seconds, shape = min(steps)
            cost, kinds = runner.plan.cost(shape), Counter()
            for op in runner.plan.ops:
                kinds[type(op).__name__] += op.cost(shape).bytes
            used = [count for count in shape.used_experts if count]
            rows.append([str(batch), f"{statistics.mean(used):.1f}" if used else "", f"{cost.bytes / 1e6:.0f}",
                         f"{seconds * 1e3:.0f}", f"{cost.bytes / seconds / 1e9:.1f}",
                         f"{sum(cost.macs) / seconds / 1e9:.0f}",
                         ", ".join(f"{kind} {nbytes / 1e6:.0f}" for kind, nbytes in kinds.most_common(5))])
        print(f"{llm.files.path.name}, {llm.backend.describe()}")
    print(table(["batch", "experts used per layer", "MB", "ms", "GB/s", "GMAC/s", "MB by kind"], rows))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-30b-a3b")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--model", metavar="FILE.gguf")
    args = parser.parse_args(argv)
    if args.model:
        whole_model(args.model)
        return 0
    backend = NativeBackend(1)
    both = {"experts": Layers(backend, SHAPES[args.shape], True), "dense": Layers(backend, SHAPES[args.shape], False)}
    figures: dict[str, dict[int, list[float]]] = {}
    for rows in ROWS:
        for _ in range(args.rounds if rows < 64 else 3):
            for name, layers in both.items():
                figures.setdefault(name, {}).setdefault(rows, []).append(layers.run(rows))
    best = {name: {rows: min(runs) for rows, runs in of.items()} for name, of in figures.items()}
    ratio = statistics.median(e[1] / d[1] for e, d in zip(figures["experts"][1], figures["dense"][1], strict=True))
    if args.json:
        print(json.dumps({"shape": args.shape, "isa": backend.isa, "one_row_ratio": ratio, "best": best}))
    else:
        print(f"{args.shape}, {backend.describe()}: one row's experts read at {ratio:.2f} of the dense rate")
        print(table(["rows", *(f"{name} {unit}" for name in best for unit in ("ms", "GB/s", "GMAC/s"))],
                    [[str(rows), *(f"{value:.{digits}f}" for of in best.values() for value, digits in zip(
                        (of[rows][0] * 1e3, of[rows][1] / 1e9, of[rows][2] / 1e9), (2, 1, 0), strict=True))]
                     for rows in ROWS]))
    return int(ratio < MIN)


if __name__ == "__main__":
    sys.exit(main())
