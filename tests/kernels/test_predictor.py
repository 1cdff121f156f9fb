"""What steps take, predicted from what they do and corrected by what they took."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.kernels.cost import StepShape
from drut.kernels.plan import Plan, Segment
from drut.kernels.predictor import MULTIPLE, SIZES, Predictor
from drut.observe.ledger import Peaks
from tests.kernels.test_floor import OPS, PEAKS, ledger_s, sequences

PLAN = Plan((Segment(tuple(OPS), None),))
DECODE = StepShape.over([(1, 300), (1, 20)], 2)
MIXED = StepShape.over([(1, 300), (1, 20), (120, 2000)], 2)


@given(sequences)
@settings(deadline=None)
def test_before_any_step_it_is_a_multiple_of_the_floor(parts: list[tuple[int, int]]) -> None:
    predictor, shape = Predictor(PLAN, PEAKS, 0.25), StepShape.over(parts, 1)
    assert predictor.floor(shape) == pytest.approx(ledger_s(shape))
    assert predictor.seconds(shape) == pytest.approx(MULTIPLE * (ledger_s(shape) + 0.25))


def learned(truth: Callable[[StepShape], float], peaks: Peaks | None, *, steps: int = 300,
            noise: float = 0.1) -> Predictor:
    """One that saw steps of mixed kinds, with some noise, one in twenty held up to thirty times as long."""
    dice, predictor = random.Random(0), Predictor(PLAN, peaks, 0.0)
    for _ in range(steps):
        streams = [(1, dice.randrange(1, 2000)) for _ in range(dice.choice([1, 2, 8]))]
        rows, start = dice.choice([16, 64, 200]), dice.randrange(3000)
        shape = StepShape.over(streams + [(rows, start + rows)] * dice.randrange(2), len(streams))
        held = 30.0 if dice.random() < 0.05 else 1.0
        predictor.observe(shape, truth(shape) * held * math.exp(dice.gauss(0, noise)))
    return predictor


@pytest.mark.parametrize("factor", [0.01, 3.0])
@pytest.mark.parametrize("peaks", [PEAKS, None])
def test_it_learns_how_fast_the_machine_is(factor: float, peaks: Peaks | None) -> None:
    """With the roof and without. Steps that are held up hardly show."""
    predictor = learned(lambda shape: factor * ledger_s(shape), peaks)
    allowed = 0.15 if peaks else 0.6
    for shape in (DECODE, MIXED):
        assert abs(math.log(predictor.seconds(shape) / (factor * ledger_s(shape)))) < allowed


def test_attention_and_decoding_may_be_nearer_to_the_roof_than_others() -> None:
    def truth(shape: StepShape) -> float:
        bare = shape._replace(kv_tokens=0, row_tokens=0, sequences=())
        without = ledger_s(bare)
        return (1.2 if shape.rows < 10 else 2.4) * without + 1.1 * (ledger_s(shape) - without)

    predictor = learned(truth, PEAKS, steps=1000)
    for shape in (DECODE, MIXED, StepShape.over([(1, 3000)], 1), StepShape.over([(1, 20), (150, 300)], 1)):
        assert abs(math.log(predictor.seconds(shape) / truth(shape))) < 0.3


def test_it_follows_a_machine_that_slows_down_for_kinds_of_steps_it_does_not_see() -> None:
    predictor = learned(lambda shape: 2 * ledger_s(shape), PEAKS)
    before = predictor.seconds(DECODE)
    for _ in range(100):
        predictor.observe(MIXED, 6 * ledger_s(MIXED))
    assert predictor.seconds(MIXED) == pytest.approx(6 * ledger_s(MIXED), rel=0.05)
    assert predictor.seconds(DECODE) > 1.05 * before


def test_one_step_says_little() -> None:
    predictor = learned(ledger_s, PEAKS)
    before = predictor.seconds(DECODE)
    predictor.observe(DECODE, 1e9)
    assert predictor.seconds(DECODE) < 1.1 * before
    predictor.observe(DECODE, 0.0)
    assert predictor.seconds(DECODE) > 0.9 * before


def test_another_roof_begins_anew() -> None:
    predictor = learned(lambda shape: 7 * ledger_s(shape), None)
    predictor.use(PEAKS)
    assert predictor.floor(MIXED) == pytest.approx(ledger_s(MIXED))
    assert predictor.seconds(MIXED) == Predictor(PLAN, PEAKS, 0.0).seconds(MIXED)


LEARNED = learned(ledger_s, PEAKS, steps=30)


@given(sequences, st.integers(0, 4000), st.integers(1, 600), st.floats(1, 5))
@settings(deadline=None)
def test_rows_within_are_those_that_fit(parts: list[tuple[int, int]], start: int, most: int, times: float) -> None:
    """Compared with the whole shape of the step that has them."""
    predictor, shape = LEARNED, StepShape.over(parts, 1)
    limit = times * predictor.seconds(shape)

    def seconds(rows: int) -> float:
        return predictor.seconds(StepShape.over([*parts, (rows, start + rows)], 1))

    rows = predictor.rows_within(shape, start, limit, most)
    assert rows == 0 or seconds(rows) <= limit * (1 + 1e-9)
    following = min([size for size in SIZES if size > rows] + [most]) if rows < most else None
    assert following is None or seconds(min(following, most)) > limit * (1 - 1e-9)


def test_sizes_grow_by_a_quarter_at_most() -> None:
    assert SIZES[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(b <= 1.25 * a for a, b in pairwise(SIZES[3:]))
