"""Updates: what a step computed for a request."""

from __future__ import annotations

from typing import NamedTuple

from drut.engine.request.request import Request
from drut.kernels.ops import F32
from drut.kernels.output import StepOutput


class ScoredTokens(NamedTuple):
    """The logprob and rank of a token, and the most likely ids with their logprobs, most likely first."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


class Update(NamedTuple):
    """A new token or None, scores if requested, and logits of prompt rows if requested.

    `request.finish_reason` is set if the request has ended."""

    request: Request
    token: int | None
    scored: ScoredTokens | None = None
    prompt_scored: tuple[ScoredTokens, ...] = ()
    logits: F32 | None = None  # (rows, vocab)
    reasoning: bool = False  # the token is part of the reasoning
    reasoning_tokens: int = 0  # number so far, marks included


def scored(out: StepOutput, sample: int, top: int | None) -> ScoredTokens:
    """Returns the scores of a sample, with the `top` most likely ids."""
    n = top or 0
    best = zip(out.top_ids[sample, :n].tolist(), out.top_logprobs[sample, :n].tolist(), strict=True)
    return ScoredTokens(int(out.tokens[sample]), float(out.logprobs[sample]), int(out.ranks[sample]),
                        tuple(b for b in best if b[0] >= 0))
