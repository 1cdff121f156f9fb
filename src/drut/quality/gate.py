"""The quality gate: limits of metrics, each held or not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from drut.quality.estimate import Estimate
from drut.quality.likelihood import Likelihood
from drut.quality.tasks import TaskScore


class GateLimits(msgspec.Struct, frozen=True):
    """The limits of the gate; None: no limit."""

    increase: float | None = None  # maximum increase of perplexity over the reference's; 0.01 is 1 %
    divergence: float | None = None  # maximum in nats per token
    agreement: float | None = None  # minimum share of tokens
    score: float | None = None  # minimum share of a task's questions


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on one metric. `sure`: the whole interval is on the same side of the limit; None without interval."""

    figure: str
    value: float
    limit: float
    held: bool
    sure: bool | None


def judge(limits: GateLimits, likelihood: Likelihood | None, score: TaskScore | None) -> list[Verdict]:
    """Returns a verdict on each metric that has a limit and was measured."""
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
