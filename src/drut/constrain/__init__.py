"""Constrained decoding: constraints on outputs, and the tokens that satisfy them."""

from drut.constrain.constraint import Constraint
from drut.constrain.reasoning import ReasoningSpec

__all__ = ["Constraint", "ReasoningSpec"]
