"""Constrained decoding: what an answer must look like, and which tokens keep it so."""

from drut.constrain.constraint import Constraint
from drut.constrain.thought import Thought

__all__ = ["Constraint", "Thought"]
