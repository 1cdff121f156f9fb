"""What a transformer is, as data. A family file fills this in; the decoder loop reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from drut.model.part import Ffn, Mixer
from drut.model.rules import Rules


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
class LayerSpec:
    """x += mixer(norm(x)); x += ffn(norm(x)).

    Without `pre_norm` x goes in as it is; with `post_norm` what comes out is normed before it is added; `parallel`
    layers give mixer and feed-forward the same norm(x). What is added is times `residual_scale`.
    """

    mixer: Mixer
    ffn: Ffn
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
        return tuple(dict.fromkeys(rope for layer in self.layers for rope in layer.mixer.ropes))

    def within(self, context: int) -> ModelSpec:
        """The same for sequences of at most `context` tokens (`Rope.within`)."""
        return replace(self, layers=tuple(replace(old, mixer=old.mixer.within(context)) for old in self.layers))

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


def check(spec: ModelSpec, where: str) -> ModelSpec:
    """`spec` if the engine can run it. UnsupportedError names what it cannot."""
    rules = Rules(where)
    demand = rules.demand
    rules.bounded("vocab", spec.vocab)
    rules.bounded("hidden", spec.hidden)
    rules.bounded("layers", len(spec.layers))
    rules.bounded("context", spec.context)
    demand(0 < spec.norm_eps < 1, f"norm epsilon {spec.norm_eps} is not between 0 and 1")
    for name in ("embed_scale", "logit_scale"):
        demand(0 < abs(getattr(spec, name)) < 1e6, f"{name} {getattr(spec, name)} is 0 or past 1e6")
    demand(0 <= spec.logit_cap < 1e6, f"soft cap {spec.logit_cap} of logits is outside 0..1e6")
    for layer in dict.fromkeys(spec.layers):
        layer.mixer.check(rules)
        layer.ffn.check(layer, rules)
        demand(0 < abs(layer.residual_scale) < 1e6, f"residual_scale {layer.residual_scale} is 0 or past 1e6")
    return spec
