"""The operations of a plan, as data: what each reads and writes, and its cost.

A backend compiles each operation to a call. `rate` is the only definition of its cost, for ledger, roofline, predictor
and planner. A backend allocates each buffer for the maximum rows of a step.

Model code does not record `Qkv`, `GateUp`, a `Project` that adds, or a norm within an operation other than the head:
fusion makes these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drut.kernels.cost import NOTHING, Cost, CostRate, Experts, StepShape, grouped, matmul
from drut.kernels.kv import PAGE_TOKENS, KvLayout
from drut.kernels.weight import Matrix, Stack, Vector
from drut.observe.ledger import Macs


class Op:
    """An operation: a frozen dataclass of buffers, weights and settings."""

    @property
    def rate(self) -> CostRate:
        """The cost of the operation. NOTHING if its data is in the CPU cache and its arithmetic is negligible."""
        return NOTHING

    def cost(self, s: StepShape) -> Cost:
        return self.rate.cost(s)


@dataclass(frozen=True)
class Buffer:
    """Activations: `width` float32 per row, or `copies` rows of them per row. The padding after `width` stays zero.

    Equal buffers share memory; the same name with another width is another buffer.
    """

    name: str
    width: int
    copies: int = 1


@dataclass(frozen=True)
class Routes:
    """The routes of a step: for each row its `top_k` of `experts`, by rank, with their weights; also the weight of the
    shared expert."""

    name: str
    experts: int
    top_k: int

    def on(self, layer: int) -> Experts:
        return Experts(self.experts, self.top_k, layer)


@dataclass(frozen=True)
class Norm:
    """x / rms(x) * weight; centred: (x - mean) / deviation * weight + bias."""

    weight: Vector
    eps: float
    centred: bool = False
    bias: Vector | None = None


@dataclass(frozen=True)
class Embed(Op):
    """x[row] = scale * table[token of row]."""

    table: Matrix
    x: Buffer
    scale: float = 1.0

    @property
    def rate(self) -> CostRate:
        return CostRate(row=Cost(self.table.nbytes // self.table.n))


@dataclass(frozen=True)
class RopeTable(Op):
    """rope[row] = cos(position * inv_freq), then sin, in float64 rounded once; times `scale`."""

    inv_freq: tuple[float, ...]
    rope: Buffer
    scale: float = 1.0


@dataclass(frozen=True)
class Qkv(Op):
    """q, k, v = projections of norm(x); q and k are normed and rotated by rope if these are given; k and v are stored
    in
    their page.

    `wide_norm`: q and k are normed over all heads together, not each head. `growth` (amount, span): q grows with its
    position, times 1 + amount * log(1 + position // span).
    """

    layer: int
    x: Buffer
    norm: Norm | None
    q_proj: Matrix
    k_proj: Matrix
    v_proj: Matrix
    rope: Buffer | None
    q: Buffer
    k: Buffer
    v: Buffer
    heads: int
    kv: KvLayout
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    wide_norm: bool = False
    growth: tuple[float, int] | None = None

    @property
    def rate(self) -> CostRate:
        return matmul(self.q_proj, self.k_proj, self.v_proj, row_bytes=self.kv.layer_bytes // PAGE_TOKENS)


@dataclass(frozen=True)
class Normalize(Op):
    """out = norm(x)."""

    layer: int
    x: Buffer
    norm: Norm
    out: Buffer


@dataclass(frozen=True)
class StoreQkv(Op):
    """The second part of `Qkv`, after its projections: norms, rope, and storing k and v in their page."""

    layer: int
    rope: Buffer | None
    q: Buffer
    k: Buffer
    v: Buffer
    heads: int
    kv: KvLayout
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    wide_norm: bool = False
    growth: tuple[float, int] | None = None

    @property
    def rate(self) -> CostRate:
        return CostRate(row=Cost(self.kv.layer_bytes // PAGE_TOKENS))


@dataclass(frozen=True)
class Attention(Op):
    """out = softmax(scale * q . K) . V over the positions of the row's sequence; K and V are read from the pages.

    `window`: positions that a row attends to, its own the last; 0: all. `cap`: scores become cap * tanh(score / cap);
    0 leaves them. `sinks`: a logit for each head that takes its share of the softmax and gives nothing.
    """

    layer: int
    q: Buffer
    out: Buffer
    heads: int
    kv: KvLayout
    scale: float
    window: int = 0
    cap: float = 0.0
    sinks: Vector | None = None

    @property
    def rate(self) -> CostRate:
        scores = self.heads * self.kv.head_dim
        # The softmax weights of int8 values are two parts of 7 bits (docs/numerics.md), each multiplied.
        macs = Macs(int8=3 * scores) if self.kv.dtype == "int8" else Macs(floats=2 * scores)
        return CostRate(kv_token=Cost(self.kv.layer_bytes // PAGE_TOKENS), row_token=Cost(0, macs), window=self.window)


@dataclass(frozen=True)
class Project(Op):
    """x += scale * (source . weight); or x = source . weight, if `add` is false. With `shared` what
    is added is also weighed as the shared expert."""

    layer: int
    source: Buffer
    weight: Matrix
    x: Buffer
    scale: float = 1.0
    add: bool = True
    shared: Routes | None = None

    @property
    def rate(self) -> CostRate:
        return matmul(self.weight)


@dataclass(frozen=True)
class Add(Op):
    """x += scale * norm(source)."""

    layer: int
    source: Buffer
    norm: Norm | None
    x: Buffer
    scale: float = 1.0


@dataclass(frozen=True)
class Tap(Op):
    """out[row][column ...] = x[row]: a copy of the residual stream for a drafter. `layer`: the layer whose output it
    is, -1 for the embeddings."""

    layer: int
    x: Buffer
    out: Buffer
    column: int = 0


ACTIVATIONS = ("silu", "gelu_tanh", "gelu_erf")


@dataclass(frozen=True)
class GateUp(Op):
    """out = activation(norm(x) . gate) * (norm(x) . up); without a gate activation(norm(x) . up)."""

    layer: int
    x: Buffer
    norm: Norm | None
    gate: Matrix | None
    up: Matrix
    out: Buffer
    activation: str = "silu"

    @property
    def rate(self) -> CostRate:
        return matmul(*([self.gate] if self.gate else []), self.up)


@dataclass(frozen=True)
class Activate(Op):
    """out = activation(gate) * up; without a gate activation(up)."""

    layer: int
    gate: Buffer | None
    up: Buffer
    out: Buffer
    activation: str = "silu"


@dataclass(frozen=True)
class Routing:
    """The rule of a router. Logits become probabilities by softmax over all experts, or each alone by `sigmoid`.

    The `top_k` largest are chosen (a correction added, if there is one), of equals the lower ids; only in the
    `kept_groups` of `groups` groups with the largest sums of two. Their weights are the probabilities (without
    correction), divided by their sum if `normalize`, times `scale`.
    """

    experts: int
    top_k: int
    sigmoid: bool = False
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    kept_groups: int = 1


@dataclass(frozen=True)
class Route(Op):
    """routes = the experts of each row and their weights, by the logits norm(x) . weight."""

    layer: int
    x: Buffer
    norm: Norm | None
    weight: Matrix
    routing: Routing
    routes: Routes
    correction: Vector | None = None  # (experts), added to what experts are chosen by
    shared_gate: Vector | None = None  # (hidden): the shared expert's weight is sigmoid(norm(x) . shared_gate)

    @property
    def rate(self) -> CostRate:
        return matmul(self.weight)


@dataclass(frozen=True)
class ExpertsGateUp(Op):
    """out[pair] = activation(norm(x) . gate, norm(x) . up) of each pair of a row and one of its experts.

    `silu`: silu(gate) * up. `clamped_swiglu`: gate * sigmoid(1.702 gate) * (up + 1), gate at most 7, up within +-7.
    """

    layer: int
    x: Buffer
    norm: Norm | None
    gate: Stack
    up: Stack
    routes: Routes
    out: Buffer
    activation: str = "silu"

    @property
    def rate(self) -> CostRate:
        return grouped(self.routes.on(self.layer), self.gate, self.up)


@dataclass(frozen=True)
class ExpertsDown(Op):
    """x[row] += sum over the row's experts, in rank order, of weight * (source[pair] . down)."""

    layer: int
    source: Buffer
    down: Stack
    routes: Routes
    x: Buffer

    @property
    def rate(self) -> CostRate:
        return grouped(self.routes.on(self.layer), self.down)


@dataclass(frozen=True)
class Head(Op):
    """logits = scale * (norm(x) . weight), for the sampled rows only; capped like the scores of `Attention`."""

    x: Buffer
    norm: Norm | None
    weight: Matrix
    scale: float = 1.0
    cap: float = 0.0

    @property
    def rate(self) -> CostRate:
        each = matmul(self.weight)
        return CostRate(once=each.once, sample=each.row)


@dataclass(frozen=True)
class Sample(Op):
    """One token id for each sample, written to the outputs and, where the sample asks for it, to a relay slot."""

    vocab: int


F32 = NDArray[np.float32]
