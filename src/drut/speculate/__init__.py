"""Speculative decoding: guesses of a sequence's next tokens, which the model then verifies in one step."""

from drut.speculate.drafter import Anchor, Drafter, Landed

__all__ = ["Anchor", "Drafter", "Landed"]
