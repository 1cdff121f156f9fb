"""The model spec: a transformer as data. A family file fills it in; the decoder reads it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from drut.model.part import Ffn, Mixer
from drut.model.rules import Rules


@dataclass(frozen=True)
class Rope:
    """Rotary positions: the angle of pair i at position p is p * inv_freq[i]. `scale` multiplies cosines and sines.

    Some models (LongRoPE) use the rope `long` if a sequence may be longer than `original_context` tokens.
    """

    inv_freq: tuple[float, ...]
    scale: float = 1.0
    original_context: int = 0
    long: Rope | None = None

    @property
    def width(self) -> int:
        """The number of elements of a head that are rotated."""
        return 2 * len(self.inv_freq)

    def within(self, context: int) -> Rope:
        """Returns the rope for sequences of at most `context` tokens.

        The choice is made once per engine and not by a sequence's length, because a row's result may depend on its
        own history only.
        """
        if self.long is not None and context > self.original_context:
            return self.long
        return Rope(self.inv_freq, self.scale)


@dataclass(frozen=True)
class LayerSpec:
    """One layer: x += mixer(norm(x)); x += ffn(norm(x)).

    Without `pre_norm`, mixer and feed-forward read x itself; with `post_norm`, their output is normed before it is
    added; `parallel` layers give mixer and feed-forward the same norm(x). `residual_scale` multiplies what is added.
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
    context: int  # the model's maximum sequence length, in tokens
    tied_head: bool
    norm: Literal["rms", "layer"] = "rms"  # RMSNorm or LayerNorm
    norm_bias: bool = False
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float = 0.0  # logits become cap * tanh(logit / cap), after the scale; 0: no cap
    mtp_layer: bool = False  # a file may have a layer past the last for multi-token prediction, which is not used

    @cached_property
    def ropes(self) -> tuple[Rope, ...]:
        """The different ropes of all layers."""
        return tuple(dict.fromkeys(rope for layer in self.layers for rope in layer.mixer.ropes))

    def within(self, context: int) -> ModelSpec:
        """Returns the spec for sequences of at most `context` tokens (`Rope.within`)."""
        return replace(self, layers=tuple(replace(old, mixer=old.mixer.within(context)) for old in self.layers))

    def parameters(self) -> int:
        """Returns the number of weights of all roles; a tied head counts once."""
        from drut.model.roles import expected_shapes

        total = 0
        for shape in expected_shapes(self).values():
            size = 1
            for dim in shape:
                size *= dim
            total += size
        return total


def check(spec: ModelSpec, where: str) -> ModelSpec:
    """Returns `spec` if the engine can run it; else raises UnsupportedError, which names the reason."""
    rules = Rules(where)
    demand = rules.demand
    rules.bounded("vocab", spec.vocab)
    rules.bounded("hidden", spec.hidden)
    rules.bounded("layers", len(spec.layers))
    rules.bounded("context", spec.context)
    demand(0 < spec.norm_eps < 1, f"norm epsilon {spec.norm_eps} is not between 0 and 1")
    for name in ("embed_scale", "logit_scale"):
        demand(0 < abs(getattr(spec, name)) < 1e6, f"{name} {getattr(spec, name)} is 0, or 1e6 or more")
    demand(0 <= spec.logit_softcap < 1e6, f"logit_softcap {spec.logit_softcap} is outside 0..1e6")
    for layer in dict.fromkeys(spec.layers):
        layer.mixer.check(rules)
        layer.ffn.check(layer, rules)
        demand(0 < abs(layer.residual_scale) < 1e6, f"residual_scale {layer.residual_scale} is 0, or 1e6 or more")
    return spec
