"""Speculative decoding: drafts of a sequence's next tokens, which the model verifies in one step."""

from drut.speculate.drafter import Drafter, DraftInput, VerifiedDrafts

__all__ = ["DraftInput", "Drafter", "VerifiedDrafts"]
