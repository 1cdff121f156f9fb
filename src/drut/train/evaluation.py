"""The evaluation of a drafter: the target answers held-out prompts with it, as it would when it serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from drut.config import EngineConfig
from drut.engine.llm import LLM
from drut.engine.step.speculation import DraftCounts
from drut.errors import DrutError
from drut.train.answers import sampling
from drut.train.prompts import TrainPrompt


@dataclass(frozen=True)
class DraftReport:
    """How often drafts were accepted. `acceptance`: the share of drafts at each position that were accepted, of those
    whose predecessors all were. `tokens_per_step`: accepted drafts and the target's own token."""

    prompts: int
    verifications: int
    drafted: int
    accepted: list[int]  # by position
    acceptance: list[float]
    tokens_per_step: float


def evaluate(model: str, drafter: str, prompts: Sequence[TrainPrompt], config: EngineConfig, *, drafts: int,
             temperature: float | None, seed: int) -> DraftReport:
    """Answers `prompts` with drafts in every step; `drafter` is the value of `speculate` without options."""
    config = replace(config, speculate=f"{drafter},k={drafts},adaptive=0")
    with LLM(model, config=config) as llm:
        llm.generate([p.ids for p in prompts], [sampling(p, i, temperature, seed) for i, p in enumerate(prompts)])
        found = list(llm.engine.speculation.counts.values())
    if not found:
        raise DrutError("the held-out answers are too short for drafts: nothing was measured")
    return report_of(found[0], len(prompts))


def report_of(counts: DraftCounts, prompts: int) -> DraftReport:
    survived = [counts.verifications, *counts.accepted]
    acceptance = [now / before if before else 0.0 for before, now in pairwise(survived)]
    return DraftReport(prompts, verifications=counts.verifications, drafted=counts.drafted,
                       accepted=list(counts.accepted), acceptance=acceptance,
                       tokens_per_step=1 + sum(counts.accepted) / counts.verifications)
