"""The cost of a step is found again in steps that had it."""

from __future__ import annotations

import random

import pytest

from drut.errors import RequestError
from drut.plan.step_cost import StepCost, StepFacts

TRUE = StepCost(5e-3, 7e-4, 8e-4, 1e-7, 3e-7)


def steps(cost: StepCost, count: int = 300, noise: float = 0.0) -> list[tuple[StepFacts, float]]:
    dice = random.Random(0)
    made = []
    for _ in range(count):
        decode, prompt = dice.randrange(1, 32), dice.choice([0, 0, dice.randrange(1, 400)])
        facts = StepFacts(decode, prompt, decode * dice.randrange(1, 3000), prompt * dice.randrange(1, 3000))
        made.append((facts, cost.seconds(facts) * dice.uniform(1 - noise, 1 + noise)))
    return made


def test_it_is_found_again() -> None:
    assert vars(StepCost.fit(steps(TRUE))) == pytest.approx(vars(TRUE))


def test_steps_that_something_held_up_do_not_count() -> None:
    made = steps(TRUE, noise=0.1)
    for i in range(0, len(made), 25):
        made[i] = made[i][0], made[i][1] * 40
    fit = StepCost.fit(made)
    for facts, _ in made[:50]:
        assert fit.seconds(facts) == pytest.approx(TRUE.seconds(facts), rel=0.15)


def test_nothing_costs_less_than_nothing() -> None:
    made = [(f, s) for f, s in steps(StepCost(5e-3, 7e-4, 8e-4, 0.0, 0.0), noise=0.3)]
    assert min(vars(StepCost.fit(made)).values()) >= 0


def test_what_no_step_had_costs_nothing() -> None:
    made = [(f._replace(prompt=0, prompt_reads=0), 0.01) for f, _ in steps(TRUE)]
    assert StepCost.fit(made).prompt == 0


def test_a_few_steps_are_too_few() -> None:
    with pytest.raises(RequestError, match="cannot be told from 19 steps"):
        StepCost.fit(steps(TRUE, 19))


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_wrong_cost_is_named(wrong: float) -> None:
    with pytest.raises(RequestError, match="prompt must be a number from 0 on"):
        StepCost(1.0, 1.0, wrong, 0.0, 0.0)
