"""Dense feed-forwards: every weight takes part in every row."""

from __future__ import annotations

from dataclasses import dataclass

from drut.kernels.ops import Activate, Buffer
from drut.model.part import Ffn, Scope, Shapes
from drut.model.rules import Rules
from drut.model.spec import LayerSpec


class DenseFfn(Ffn):
    """A feed-forward whose `inner` roles read norm(x) and whose `down` projects back."""

    inner: tuple[str, ...]
    activation: str
    bias: bool

    def shapes(self, hidden: int) -> Shapes:
        shapes: Shapes = {**dict.fromkeys(self.inner, (self.width, hidden)), "down": (hidden, self.width)}
        if self.bias:
            shapes |= {f"{name}_bias": (shape[0],) for name, shape in shapes.items()}
        return shapes

    def check(self, layer: LayerSpec, rules: Rules) -> None:
        rules.bounded("ffn width", self.width)

    def record(self, scope: Scope) -> Buffer:
        """activation(gate) * up, or activation(up), of norm(x)."""
        layer, inner = scope.layer, Buffer("inner", self.width)
        y = scope.normed(scope.x, "attn_norm" if layer.parallel else "ffn_norm") if layer.pre_norm else scope.x
        gate = scope.projected(y, "gate", "inner_gate") if "gate" in self.inner else None
        up = scope.projected(y, "up", "inner_up")
        scope.recorder.add(Activate(scope.index, gate, up, inner, self.activation))
        return inner


@dataclass(frozen=True)
class GatedFfn(DenseFfn):
    """down(activation(gate(x)) * up(x))."""

    width: int
    activation: str = "silu"
    bias: bool = False

    kind = "gated"
    inner = ("gate", "up")


@dataclass(frozen=True)
class PlainFfn(DenseFfn):
    """down(activation(up(x)))."""

    width: int
    activation: str = "gelu_tanh"
    bias: bool = False

    kind = "plain"
    inner = ("up",)
