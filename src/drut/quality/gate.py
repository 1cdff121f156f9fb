"""Whether a model is good enough: limits on figures, each held or not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from drut.quality.estimate import Estimate
from drut.quality.likelihood import Likelihood
from drut.quality.tasks import Score


class Limits(msgspec.Struct, frozen=True):
    """None: no limit."""

    increase: float | None = None  # of perplexity over the reference's, at most; 0.01 is 1 %
    divergence: float | None = None  # nats a token, at most
    agreement: float | None = None  # share of tokens, at least
    score: float | None = None  # share of a task's questions, at least


class Verdict(msgspec.Struct, frozen=True):
    """`sure`: the whole interval lies on the same side of the limit; None where there is no interval."""

    figure: str
    value: float
    limit: float
    held: bool
    sure: bool | None


def judge(limits: Limits, likelihood: Likelihood | None, score: Score | None) -> list[Verdict]:
    """A verdict on each figure that has a limit and was measured."""
    found: list[tuple[str, Estimate | None, float | None, bool]] = []
    if likelihood is not None:
        found += [("increase", likelihood.increase, limits.increase, False),
                  ("divergence", likelihood.divergence, limits.divergence, False),
                  ("agreement", likelihood.agreement, limits.agreement, True)]
    if score is not None:
        found.append(("score", score.correct, limits.score, True))
    return list(_verdicts(found))


def _verdicts(found: list[tuple[str, Estimate | None, float | None, bool]]) -> Iterator[Verdict]:
    for name, estimate, limit, at_least in found:
        if estimate is None or limit is None:
            continue

        def holds(value: float, limit: float = limit, at_least: bool = at_least) -> bool:
            return value >= limit if at_least else value <= limit

        held, ends = holds(estimate.value), (estimate.low, estimate.high)
        sure = None if None in ends else all(holds(end) == held for end in ends if end is not None)
        yield Verdict(name, estimate.value, limit, held, sure)
