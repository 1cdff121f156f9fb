"""Speculative decoding: drafts of a sequence's next tokens, which the model verifies in one step."""

from drut.speculate.drafter import Anchor, Drafter, Landed

__all__ = ["Anchor", "Drafter", "Landed"]
