"""What a step brought a request."""

from __future__ import annotations

from typing import NamedTuple

from drut.engine.request import Request
from drut.kernels.ops import F32
from drut.kernels.output import StepOutput


class Scored(NamedTuple):
    """A token's place among all: its logprob and rank, and the likeliest ids with theirs, likeliest first."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


class Update(NamedTuple):
    """A token or none, scores if asked for, and the logits of prompt rows if the request wants those.

    `request.finish_reason` says whether it ended."""

    request: Request
    token: int | None
    scored: Scored | None = None
    prompt_scored: tuple[Scored, ...] = ()
    logits: F32 | None = None  # (rows, vocab)
    reasoning: bool = False  # the token is none of the answer proper
    reasoning_tokens: int = 0  # so far, marks included


def scored(out: StepOutput, sample: int, top: int | None) -> Scored:
    """The scores of a sample, with the `top` likeliest ids."""
    n = top or 0
    best = zip(out.top_ids[sample, :n].tolist(), out.top_logprobs[sample, :n].tolist(), strict=True)
    return Scored(int(out.tokens[sample]), float(out.logprobs[sample]), int(out.ranks[sample]),
                  tuple(b for b in best if b[0] >= 0))
