"""What a transformer is, as data. A family file fills this in; the decoder loop reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from drut.errors import UnsupportedError
from drut.kernels.ops import Routing


@dataclass(frozen=True)
class Rope:
    """Rotary positions: the angle of pair i at position p is p * inv_freq[i]; the cosines and sines times `scale`.

    Some models turn otherwise where a sequence may be longer than `limit` tokens: by `beyond`.
    """

    inv_freq: tuple[float, ...]
    scale: float = 1.0
    limit: int = 0
    beyond: Rope | None = None

    @property
    def width(self) -> int:
        """Elements of a head that are turned."""
        return 2 * len(self.inv_freq)

    def within(self, context: int) -> Rope:
        """What turns sequences of at most `context` tokens. The choice is made once and not by a sequence's length: a
        row's result may depend on its own history only."""
        if self.beyond is not None and context > self.limit:
            return self.beyond
        return Rope(self.inv_freq, self.scale)


@dataclass(frozen=True)
class AttentionMixer:
    """Grouped-query attention. Head h reads key/value head h // (heads / kv_heads)."""

    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope | None  # None: no position is told
    scale: float  # of q . k
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["", "head", "width"] = ""  # q and k are normed: each head, or all heads together
    window: int = 0  # positions a row sees, its own the last; 0: all
    cap: float = 0.0  # scores become cap * tanh(score / cap); 0: they stay
    sinks: bool = False  # each head has a logit that takes its share of the softmax and gives nothing
    growth: tuple[float, int] | None = None  # (amount, span): q times 1 + amount * log(1 + position // span)

    kind = "attention"

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


@dataclass(frozen=True)
class GatedFfn:
    """down(activation(gate(x)) * up(x))."""

    width: int
    activation: str = "silu"
    bias: bool = False

    kind = "gated"


@dataclass(frozen=True)
class PlainFfn:
    """down(activation(up(x)))."""

    width: int
    activation: str = "gelu_tanh"
    bias: bool = False

    kind = "plain"


@dataclass(frozen=True)
class MoeFfn:
    """Experts of `width`, some of which a router chooses for each row, and perhaps one that all rows share.

    `bias`: router and experts add biases. `shared_gate`: the shared expert is weighed by a sigmoid of the row.
    """

    width: int
    routing: Routing
    shared_width: int = 0
    shared_gate: bool = False
    correction: bool = False
    bias: bool = False
    activation: str = "silu"

    kind = "moe"


@dataclass(frozen=True)
class LayerSpec:
    """x += mixer(norm(x)); x += ffn(norm(x)).

    Without `pre_norm` x goes in as it is; with `post_norm` what comes out is normed before it is added; `parallel`
    layers give mixer and feed-forward the same norm(x). What is added is times `residual_scale`.
    """

    mixer: AttentionMixer
    ffn: GatedFfn | PlainFfn | MoeFfn
    pre_norm: bool = True
    post_norm: bool = False
    parallel: bool = False
    residual_scale: float = 1.0


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only transformer."""

    architecture: str  # as the file names it
    family: str
    vocab: int
    hidden: int
    layers: tuple[LayerSpec, ...]
    norm_eps: float
    context: int  # tokens the model was made for
    tied_head: bool
    centred_norm: bool = False  # norms take off the mean, too
    norm_bias: bool = False
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float = 0.0  # logits become cap * tanh(logit / cap), after the scale; 0: they stay
    drafts: bool = False  # a file may have a layer past the last, which drafts tokens and is not used

    @cached_property
    def ropes(self) -> tuple[Rope, ...]:
        """Each once."""
        return tuple(dict.fromkeys(layer.mixer.rope for layer in self.layers if layer.mixer.rope))

    def within(self, context: int) -> ModelSpec:
        """The same for sequences of at most `context` tokens (`Rope.within`)."""
        def layer(old: LayerSpec) -> LayerSpec:
            rope = old.mixer.rope
            return replace(old, mixer=replace(old.mixer, rope=rope.within(context))) if rope else old

        return replace(self, layers=tuple(map(layer, self.layers)))

    def parameters(self) -> int:
        """Weights of all roles; a tied head counts once."""
        from drut.model.roles import expected_shapes

        total = 0
        for shape in expected_shapes(self).values():
            size = 1
            for dim in shape:
                size *= dim
            total += size
        return total


LIMITS = {
    "vocab": 1 << 22, "hidden": 1 << 17, "layers": 1 << 12, "heads": 1 << 12, "head_dim": 256, "ffn width": 1 << 19,
    "context": 1 << 27, "experts": 1024,
}


def _check_experts(ffn: MoeFfn, bounded: Callable[[str, Any], None], demand: Callable[[bool, str], None]) -> None:
    how = ffn.routing
    bounded("experts", how.experts)
    demand(0 <= ffn.shared_width <= LIMITS["ffn width"], f"shared expert width {ffn.shared_width} is out of bounds")
    demand(1 <= how.groups <= how.experts and how.experts % how.groups == 0,
           f"{how.experts} experts do not divide into {how.groups} groups")
    demand(1 <= how.kept_groups <= how.groups, f"{how.kept_groups} of {how.groups} groups of experts are kept")
    most = how.experts // how.groups * how.kept_groups
    demand(1 <= how.top_k <= most, f"{how.top_k} experts a token are to be chosen of {most}")
    demand(0 < how.scale < 1e6, f"the scale of expert weights, {how.scale}, is not between 0 and 1e6")
    demand(how.sigmoid or not ffn.correction, "a correction of softmax probabilities is not supported")


def check(spec: ModelSpec, where: str) -> ModelSpec:
    """`spec` if the engine can run it. UnsupportedError names what it cannot."""

    def demand(ok: bool, what: str) -> None:
        if not ok:
            raise UnsupportedError(f"{where}: {what}")

    def bounded(name: str, value: Any) -> None:
        demand(1 <= value <= LIMITS[name], f"{name} {value} is outside 1..{LIMITS[name]}")

    bounded("vocab", spec.vocab)
    bounded("hidden", spec.hidden)
    bounded("layers", len(spec.layers))
    bounded("context", spec.context)
    demand(0 < spec.norm_eps < 1, f"norm epsilon {spec.norm_eps} is not between 0 and 1")
    for name in ("embed_scale", "logit_scale"):
        demand(0 < abs(getattr(spec, name)) < 1e6, f"{name} {getattr(spec, name)} is 0 or past 1e6")
    demand(0 <= spec.logit_cap < 1e6, f"soft cap {spec.logit_cap} of logits is outside 0..1e6")
    for layer in dict.fromkeys(spec.layers):
        m = layer.mixer
        bounded("heads", m.heads)
        bounded("heads", m.kv_heads)
        bounded("head_dim", m.head_dim)
        bounded("ffn width", layer.ffn.width)
        if isinstance(layer.ffn, MoeFfn):
            plain = layer.pre_norm and not layer.post_norm and not layer.parallel and layer.residual_scale == 1
            demand(plain, "experts with norms after them, in parallel or scaled are not supported")
            _check_experts(layer.ffn, bounded, demand)
        demand(m.heads % m.kv_heads == 0, f"{m.heads} heads do not divide among {m.kv_heads} key/value heads")
        demand(m.heads // m.kv_heads <= 64, f"{m.heads // m.kv_heads} heads share one key/value head; at most 64 may")
        demand(m.head_dim % 16 == 0, f"head size {m.head_dim} is not a multiple of 16")
        demand(0 < abs(m.scale) < 1e6, f"scale {m.scale} of attention is 0 or past 1e6")
        demand(0 <= m.window <= LIMITS["context"], f"window {m.window} is outside 0..{LIMITS['context']}")
        demand(0 <= m.cap < 1e6, f"soft cap {m.cap} of attention is outside 0..1e6")
        demand(m.rope is None or m.rope.width <= m.head_dim, "rope turns more elements than a head has")
        demand(0 < abs(layer.residual_scale) < 1e6, f"residual_scale {layer.residual_scale} is 0 or past 1e6")
    return spec
