"""What the decoder, the loader and the checks ask of a layer's parts, whatever kind they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from drut.kernels.kv import Layout
from drut.kernels.ops import Buffer, Norm, Normalize, Project
from drut.kernels.plan import Recorder
from drut.model.rules import Rules

if TYPE_CHECKING:
    from drut.model.spec import LayerSpec, ModelSpec, Rope
    from drut.model.weights.loader import Weights

Shapes = dict[str, tuple[int, ...]]  # by role: (outputs, inputs) of a matrix, (size,) of a vector, experts in front


class CacheUse(ABC):
    """What a layer keeps of a sequence, a frozen dataclass. Layers with equal uses share a KV group."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """Positions back that it keeps something of: inf for all, 0 for a slot that does not grow. Groups come in this
        order, the farthest first."""

    @abstractmethod
    def layout(self, dtype: str, group: int, members: tuple[int, ...]) -> Layout:
        """Of the group, number `group` of the model, of the layers `members`; `dtype`: of keys and values."""

    def within(self, context: int) -> Self:
        """The same where no sequence has more than `context` tokens: what sees as many sees all."""
        return self


class Outline(NamedTuple):
    """What `drut inspect` shows of a mixer; 0 for what it does not have."""

    kind: str
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    window: int = 0


@dataclass(frozen=True)
class Scope:
    """Where a part records its operations: one layer of a plan. `weights`: by the layer's roles; `x`: the residual
    stream; `kv`: the layout of the layer's KV group, None if it keeps nothing."""

    recorder: Recorder
    spec: ModelSpec
    layer: LayerSpec
    index: int
    weights: Weights
    x: Buffer
    kv: Layout | None

    def norm(self, role: str) -> Norm:
        """The model's kind of norm, with the weights of `role`."""
        return norm(self.spec, self.weights, role)

    def normed(self, x: Buffer, role: str) -> Buffer:
        """Records norm(x); the next norm overwrites it."""
        out = Buffer("normed", x.width)
        self.recorder.add(Normalize(self.index, x, self.norm(role), out))
        return out

    def projected(self, source: Buffer, role: str, name: str) -> Buffer:
        """Records `source` times the matrix of `role`, to a buffer called `name`."""
        weight = self.weights.matrix(role)
        out = Buffer(name, weight.n)
        self.recorder.add(Project(self.index, source, weight, out, add=False))
        return out


def norm(spec: ModelSpec, weights: Weights, role: str) -> Norm:
    bias = weights.vector(f"{role}_bias") if spec.norm_bias else None
    return Norm(weights.vector(role), spec.norm_eps, spec.centred_norm, bias)


def rope_buffer(spec: ModelSpec, rope: Rope) -> Buffer:
    """Cosines and sines of a step's rows, shared by all layers with the same frequencies."""
    return Buffer(f"rope{spec.ropes.index(rope)}", 2 * len(rope.inv_freq))


class Mixer(ABC):
    """How a layer moves information between positions. A kind is a frozen dataclass in a file of its own."""

    kind: ClassVar[str]

    @abstractmethod
    def shapes(self, hidden: int) -> Shapes:
        """Its roles with their shapes, `o` among them."""

    @abstractmethod
    def check(self, rules: Rules) -> None:
        """UnsupportedError if it cannot be computed."""

    @abstractmethod
    def record(self, scope: Scope) -> Buffer:
        """Records its operations over norm(x); returns what `o` projects back."""

    @abstractmethod
    def outline(self) -> Outline: ...

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """Rotations that its rows need."""
        return ()

    def within(self, context: int) -> Self:
        """The same for sequences of at most `context` tokens."""
        return self

    def cache_use(self) -> CacheUse | None:
        """What it keeps of a sequence; None for nothing."""
        return None

    def paired_rows(self) -> dict[str, tuple[int, int]]:
        """Roles whose rows llama.cpp lays out pair by pair: number of heads, and elements of a head that are turned."""
        return {}


class Ffn(ABC):
    """How a layer transforms each position on its own. A kind is a frozen dataclass in a file of its own."""

    kind: ClassVar[str]
    width: int

    @abstractmethod
    def shapes(self, hidden: int) -> Shapes:
        """Its roles with their shapes."""

    @abstractmethod
    def check(self, layer: LayerSpec, rules: Rules) -> None:
        """UnsupportedError if it cannot be computed in `layer`."""

    @abstractmethod
    def record(self, scope: Scope) -> Buffer | None:
        """Records its operations over norm(x); returns what `down` projects back, None if x has it already."""
