"""Plans of a few operations on any backend: arbitrary matrices and activations in, buffers out.

Activations are the rows of an F32 embedding table, so that they arrive exactly; arbitrary logits come out of a head
whose norm and product are exact (`Sampler`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.formats.decode import decode
from drut.formats.encoding import Encoding, encoding
from drut.kernels.backend import Backend, BackendLimits, StepOutput
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import PAGE_TOKENS, KvLayout
from drut.kernels.native import library
from drut.kernels.numpy.backend import NumpyBackend
from drut.kernels.numpy.executable import NumpyExecutable
from drut.kernels.numpy.numbers import to_bf16
from drut.kernels.ops import Buffer, Embed, GateUp, Head, Norm, Op, Project, Sample
from drut.kernels.plan import Plan, Recorder
from drut.kernels.pool import Pool
from drut.kernels.weight import Matrix

F32 = NDArray[np.float32]
U = 2.0**-24  # relative error of one float32 rounding
FLOATS, QUANTS = ("F32", "F16", "BF16"), ("Q4_0", "Q4_1", "Q8_0")
NO_KV = KvLayout("fp32", 1, 1, 16)


def usable_isas() -> list[str]:
    """Instruction sets this build and CPU can run, the plainest (the definition) first."""
    loaded = library.load()
    return [] if loaded is None else [isa.name for isa in reversed(library.isas(loaded)) if isa.supported]


class Stored(NamedTuple):
    """A matrix as a file holds it: `raw` is (n, row bytes)."""

    encoding: Encoding
    raw: NDArray[np.uint8]
    n: int
    k: int
    rows: NDArray[np.int32] | None = None
    bias: F32 | None = None
    slices: int = 1

    def on(self, backend: Backend) -> Matrix:
        return backend.matrix(self.encoding, self.raw, self.n, self.k, rows=self.rows, bias=self.bias,
                              slices=self.slices)

    def values(self) -> F32:
        """(n, k), in the order `rows`."""
        stored = decode(self.encoding, self.raw, self.k)
        return stored if self.rows is None else stored[self.rows]


def floats(values: Any, name: str = "F32") -> Stored:
    """`values` (n, k) rounded to a float encoding."""
    x = np.ascontiguousarray(values, np.float32)
    stored = {"F32": lambda: x, "F16": lambda: x.astype(np.float16), "BF16": lambda: to_bf16(x)}[name]()
    return Stored(encoding(name), np.ascontiguousarray(stored).view(np.uint8), *x.shape)


def blocks(name: str, codes: NDArray[Any], scales: Any, minima: Any = 0.0) -> Stored:
    """`codes` (n, k) as stored, 0..15 or -128..127; scales and minima broadcast to (n, k/32)."""
    n, k = codes.shape
    enc = encoding(name)
    shape = (n, k // enc.block)
    parts = [_halves(scales, shape)]
    if enc.name == "Q4_1":
        parts.append(_halves(minima, shape))
    by_block = codes.reshape(*shape, enc.block)
    if enc.bits == 8:
        parts.append(by_block.astype(np.int8).view(np.uint8))
    else:
        parts.append((by_block[..., :16] | by_block[..., 16:] << 4).astype(np.uint8))
    return Stored(enc, np.concatenate(parts, axis=-1).reshape(n, -1), n, k)


def _halves(values: Any, shape: tuple[int, int]) -> NDArray[np.uint8]:
    return np.broadcast_to(np.asarray(values, np.float16), shape)[..., None].copy().view(np.uint8)


def code_range(name: str) -> tuple[int, int]:
    return (-128, 127) if name == "Q8_0" else (0, 15)


def random_codes(rng: np.random.Generator, name: str, n: int, k: int) -> NDArray[np.int64]:
    low, high = code_range(name)
    return rng.integers(low, high + 1, (n, k))


def random_matrix(rng: np.random.Generator, name: str, n: int, k: int) -> Stored:
    """Weights of about unit size."""
    if name in FLOATS:
        return floats(rng.random((n, k)) * 4 - 2, name)
    scales = rng.uniform(0.5, 2.0, (n, k // 32)) / code_range(name)[1]
    return blocks(name, random_codes(rng, name, n, k), scales, -8 * scales)


def diagonal(values: F32) -> Stored:
    return floats(np.diag(values))


def recorded(*ops: Op) -> Plan:
    recorder = Recorder()
    for op in ops:
        recorder.add(op)
    return recorder.finish()


def filler_head(backend: Backend, x: Buffer) -> Head:
    """The head every plan ends in, for plans that care about something else."""
    return Head(x, Norm(backend.vector(np.zeros(x.width, np.float32)), 1.0), floats(np.zeros((1, x.width))).on(backend))


class Ran:
    """A plan ready to run, and a look into its buffers."""

    def __init__(self, backend: Backend, plan: Plan, *, rows: int, samples: int = 1, kv: KvLayout = NO_KV,
                 pages: int = 1, pool: Pool | None = None) -> None:
        self.pool = backend.pool(kv, pages) if pool is None else pool
        self.executable = backend.load(plan, [self.pool], BackendLimits(rows, samples, relay_slots=rows))
        self.step = StepDescriptor(rows, rows, samples, rows * max(1, pages))
        self._pages = pages

    def run(self, tokens: Sequence[int], start: int = 0, pages: Sequence[int] | None = None) -> StepOutput:
        """One step of one sequence."""
        self.step.clear()
        used = -(-(start + len(tokens)) // PAGE_TOKENS)
        self.step.add_sequence(tokens, start, [0] * used if pages is None else pages, 0)
        return self.executable.run(self.step)

    def read(self, buffer: Buffer) -> F32:
        """The last step's rows of a buffer."""
        rows, exe = self.step.rows, self.executable
        held = exe.state.values if isinstance(exe, NumpyExecutable) else exe.workspace.buffers
        return held[buffer][:rows, : buffer.width].copy()


def projection(backend: Backend, weight: Stored, source: F32, residual: F32) -> tuple[Ran, Buffer]:
    """x = residual + source . weight; token i takes row i of both."""
    into, x = Buffer("source", weight.k), Buffer("x", weight.n)
    plan = recorded(Embed(floats(source).on(backend), into), Embed(floats(residual).on(backend), x),
                    Project(0, into, weight.on(backend), x), filler_head(backend, x))
    return Ran(backend, plan, rows=len(source), pages=-(-len(source) // PAGE_TOKENS)), x


def project(backend: Backend, weight: Stored, source: F32, residual: F32 | None = None) -> F32:
    """residual + source . weight, of all rows in one step."""
    if residual is None:
        residual = np.zeros((len(source), weight.n), np.float32)
    ran, x = projection(backend, weight, source, residual)
    ran.run(range(len(source)))
    return ran.read(x)


def gate_up(backend: Backend, gate: Stored | None, up: Stored, signs: F32, activation: str = "silu") -> F32:
    """activation(signs . gate) * (signs . up) for rows of +-1, which a norm without epsilon leaves as they are."""
    x, out = Buffer("x", up.k), Buffer("inner", up.n)
    ones, first = backend.vector(np.ones(up.k, np.float32)), gate.on(backend) if gate else None
    plan = recorded(Embed(floats(signs).on(backend), x),
                    GateUp(layer=0, x=x, norm=Norm(ones, 0.0), gate=first, up=up.on(backend), out=out,
                           activation=activation), filler_head(backend, x))
    ran = Ran(backend, plan, rows=len(signs))
    ran.run(range(len(signs)))
    return ran.read(out)


def head_plan(backend: Backend, x: F32, norm: F32, eps: float, weight: Stored, *more: Op, bias: F32 | None = None,
              centred: bool = False, scale: float = 1.0, cap: float = 0.0) -> Plan:
    """Embed and head; token i takes row i of `x`."""
    buffer = Buffer("x", weight.k)
    how = Norm(backend.vector(norm), eps, centred, None if bias is None else backend.vector(bias))
    return recorded(Embed(floats(x).on(backend), buffer), Head(buffer, how, weight.on(backend), scale, cap), *more)


def oracle() -> NumpyBackend:
    return NumpyBackend()


def assert_same_bits(actual: F32, expected: F32, what: str = "") -> None:
    """Equal bit for bit; one NaN is as good as another."""
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype == np.float32
    differ = (actual.view(np.uint32) != expected.view(np.uint32)) & ~(np.isnan(actual) & np.isnan(expected))
    if differ.any():
        at = tuple(int(i) for i in np.argwhere(differ)[0])
        raise AssertionError(f"{what}: {int(differ.sum())} of {differ.size} differ, first at {at}: "
                             f"{actual[at]!r} for {expected[at]!r}")


@dataclass(frozen=True)
class Draw:
    """How one token is drawn from row `row` of the logits, which stands at position `row`."""

    row: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    choice: int = 0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = -1


class Sampler:
    """Draws from given logits: the head multiplies rows of a unit matrix, exactly, by the logits as its weights."""

    def __init__(self, backend: Backend, logits: F32, samples: int) -> None:
        """`logits` (1, vocab), which may be anything, or (4, vocab) or (16, vocab) of finite numbers."""
        rows, vocab = logits.shape
        assert rows in (1, 4, 16), "the norm of a unit row is exact for powers of four"
        norm = np.full(rows, rows**-0.5, np.float32)
        plan = head_plan(backend, np.eye(rows), norm, 0.0, floats(logits.T), Sample(vocab))
        self._rows, self._ran = rows, Ran(backend, plan, rows=rows, samples=samples)

    def draw(self, draws: Sequence[Draw]) -> StepOutput:
        step = self._ran.step
        step.clear()
        step.add_sequence(range(self._rows), 0, [0], 0)
        for d in draws:
            step.add_sample(d.row, d, d.seed, d.choice)
        return StepOutput(*(field.copy() for field in self._ran.executable.run(step)))

    def ids(self, draws: Sequence[Draw]) -> list[int]:
        out = self.draw(draws)
        assert out.drawn.all()
        return out.tokens.tolist()

    def logits(self, count: int) -> F32:
        return self._ran.executable.logits(count).copy()
