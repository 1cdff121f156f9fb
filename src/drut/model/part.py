"""The interface of a layer's parts, mixer and feed-forward, to the decoder, the loader and the checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from drut.kernels.kv import CacheLayout
from drut.kernels.ops import Buffer, Norm, Normalize, Project
from drut.kernels.plan import Recorder
from drut.model.rules import Rules

if TYPE_CHECKING:
    from drut.model.spec import LayerSpec, ModelSpec, Rope
    from drut.model.weights.loader import Weights

# Role -> shape: (outputs, inputs) of a matrix, (size,) of a vector; the number of experts comes first.
Shapes = dict[str, tuple[int, ...]]


class CacheUse(ABC):
    """What a layer caches of a sequence: a frozen dataclass. Layers with equal uses form a KV group."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """The number of latest positions that it caches: inf for all, 0 for a slot that does not grow. Groups are in
        this order, the largest first."""

    @abstractmethod
    def layout(self, dtype: str, group: int, members: tuple[int, ...]) -> CacheLayout:
        """Returns the layout of the model's group number `group` with the layers `members`; `dtype`: the format of keys
        and values."""

    def within(self, context: int) -> Self:
        """Returns the use for sequences of at most `context` tokens: a window of so many tokens covers all."""
        return self


class Outline(NamedTuple):
    """The fields that `drut show` prints of a mixer; 0 for a field that it does not have."""

    kind: str
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    window: int = 0


@dataclass(frozen=True)
class Scope:
    """The context in which a part records its operations: one layer of a plan. `weights`: by the layer's roles; `x`:
    the residual stream; `kv`: the layout of the layer's KV group, None if it caches nothing."""

    recorder: Recorder
    spec: ModelSpec
    layer: LayerSpec
    index: int
    weights: Weights
    x: Buffer
    kv: CacheLayout | None

    def norm(self, role: str) -> Norm:
        """Returns the model's kind of norm, with the weights of `role`."""
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
    return Norm(weights.vector(role), spec.norm_eps, spec.norm == "layer", bias)


def rope_buffer(spec: ModelSpec, rope: Rope) -> Buffer:
    """Returns the buffer of cosines and sines of a step's rows, shared by all layers with the same rope."""
    return Buffer(f"rope{spec.ropes.index(rope)}", 2 * len(rope.inv_freq))


class Mixer(ABC):
    """The part of a layer that mixes positions. Each kind is a frozen dataclass in a file of its own."""

    kind: ClassVar[str]

    @abstractmethod
    def shapes(self, hidden: int) -> Shapes:
        """Returns its roles with their shapes, including `o`."""

    @abstractmethod
    def check(self, rules: Rules) -> None:
        """Raises UnsupportedError if it cannot be computed."""

    @abstractmethod
    def record(self, scope: Scope) -> Buffer:
        """Records its operations over norm(x); returns the buffer that `o` projects back."""

    @abstractmethod
    def outline(self) -> Outline: ...

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The ropes that its rows need."""
        return ()

    def within(self, context: int) -> Self:
        """Returns the mixer for sequences of at most `context` tokens (`Rope.within`)."""
        return self

    def cache_use(self) -> CacheUse | None:
        """Returns what it caches of a sequence; None for nothing."""
        return None

    def paired_rows(self) -> dict[str, tuple[int, int]]:
        """Returns the roles whose rope pairs llama.cpp stores in adjacent rows: number of heads, and number of rotated
        elements of a head."""
        return {}


class Ffn(ABC):
    """The part of a layer that works on each position alone. Each kind is a frozen dataclass in a file of its own."""

    kind: ClassVar[str]
    width: int

    @abstractmethod
    def shapes(self, hidden: int) -> Shapes:
        """Returns its roles with their shapes."""

    @abstractmethod
    def check(self, layer: LayerSpec, rules: Rules) -> None:
        """Raises UnsupportedError if it cannot be computed in `layer`."""

    @abstractmethod
    def record(self, scope: Scope) -> Buffer | None:
        """Records its operations over norm(x); returns the buffer that `down` projects back, None if the operations
        add to x themselves."""
