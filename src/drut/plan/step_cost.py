"""What a step costs in seconds, as a line through measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from drut.engine.work import Work
from drut.errors import RequestError


class StepFacts(NamedTuple):
    """What a step computes: rows that say a token, rows of prompts, and the positions each kind attends to, summed."""

    decode: int
    prompt: int
    decode_reads: int
    prompt_reads: int

    @classmethod
    def of(cls, work: Sequence[Work]) -> StepFacts:
        counts = [0, 0, 0, 0]
        for w in work:
            kind = 0 if w.decodes else 1
            counts[kind] += w.rows
            counts[kind + 2] += w.rows * w.start + w.rows * (w.rows + 1) // 2
        return cls(*counts)


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step: one sum for any, and more for each row and each position attended to. None is below 0."""

    step: float
    decode: float
    prompt: float
    decode_read: float
    prompt_read: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < float("inf"):
                raise RequestError(f"the cost of a step: {name} must be a number from 0 on, not {value}")

    def seconds(self, facts: StepFacts) -> float:
        return (self.step + self.decode * facts.decode + self.prompt * facts.prompt
                + self.decode_read * facts.decode_reads + self.prompt_read * facts.prompt_reads)

    @classmethod
    def fit(cls, steps: Sequence[tuple[StepFacts, float]]) -> StepCost:
        """By least squares of the relative error, coefficients that come out negative left out; steps that took over
        three times what the line says, as when another process had the CPU, are left out of a second fit.

        RequestError where there are fewer than 20 steps."""
        if len(steps) < 20:
            raise RequestError(f"the cost of a step cannot be told from {len(steps)} steps")
        facts = np.array([[1, *f] for f, _ in steps], float)
        seconds = np.array([s for _, s in steps])
        found = _fit(facts, seconds)
        usual = seconds < 3 * (facts @ found)
        return cls(*map(float, _fit(facts[usual], seconds[usual])))


def _fit(facts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    rows = facts / seconds[:, None]
    kept = [i for i in range(facts.shape[1]) if rows[:, i].any()]
    while True:
        solution = np.linalg.lstsq(rows[:, kept], np.ones(len(rows)), rcond=None)[0]
        if (solution >= 0).all():
            found = np.zeros(facts.shape[1])
            found[kept] = solution
            return found
        kept.pop(int(solution.argmin()))
