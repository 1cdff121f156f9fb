"""The controller takes the drafts with the most tokens per second."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.kernels.cost import StepShape
from drut.kernels.predictor import Predictor
from drut.speculate.acceptance import Acceptance, DraftLog, Outcome
from drut.speculate.choice import ChoosingDrafter
from drut.speculate.controller import MARGIN, Proposal, SpeculationController
from drut.speculate.drafter import Drafter, DraftInput, VerifiedDrafts
from tests.engine.testbed import predicting

TIMES = {"cheap": {"once": 1e-2, "row": 1e-4}, "dear": {"once": 1e-4, "row": 1e-2}, "even": {"once": 4e-3, "row": 1e-3}}


def controller_of(times: str, *, overlap: bool = True, host_s: float = 5e-4) -> SpeculationController:
    made = SpeculationController(predicting(**TIMES[times]), 8, overlap=overlap)
    made.host_s = host_s
    return made


def observed(controller: SpeculationController, sequence: int, drafted: int, accepted: int) -> None:
    for _ in range(500):
        controller.observe(sequence, drafted, accepted)


@pytest.mark.parametrize(("times", "accepted", "length"), [
    ("cheap", 8, 8), ("cheap", 0, 0), ("dear", 8, 0), ("dear", 0, 0), ("cheap", 3, 3)])
def test_as_many_drafts_as_pay(times: str, accepted: int, length: int) -> None:
    controller = controller_of(times)
    observed(controller, 1, 8, accepted)
    assert controller.lengths([Proposal(1, 8)], 1, 100) == [length]


@pytest.mark.parametrize(("times", "accepted", "drafting_s", "length"), [
    ("cheap", 8, 0.0, 8), ("cheap", 8, 1e-2, 0), ("cheap", 8, 5e-4, 8), ("cheap", 2, 5e-4, 2), ("cheap", 0, 0.0, 0),
    ("dear", 8, 0.0, 0)])
def test_drafts_that_cost_time_must_pay_for_it(times: str, accepted: int, drafting_s: float, length: int) -> None:
    controller = controller_of(times)
    observed(controller, 1, 8, accepted)
    assert controller.drafts_worth([1], 1, 100, lambda drafts: drafting_s * drafts) == length
    assert controller.drafts_worth([1, 1, 1], 3, 100, lambda drafts: drafting_s * drafts) == length


def test_the_better_sequence_has_the_more_drafts() -> None:
    controller = controller_of("even")
    observed(controller, 1, 8, 7)
    observed(controller, 2, 8, 1)
    good, bad = controller.lengths([Proposal(1, 8), Proposal(2, 8)], 4, 100)
    assert good > bad


def test_a_new_sequence_is_taken_for_one_of_the_others() -> None:
    controller = controller_of("cheap")
    observed(controller, 1, 8, 8)
    assert controller.lengths([Proposal(2, 8)], 1, 100)[0] > 4
    controller.forget(1)
    observed(controller, 3, 8, 0)
    assert controller.lengths([Proposal(4, 8)], 1, 100) == [0]


def test_the_host_counts_where_overlap_hides_it() -> None:
    for overlap, length in ((True, 0), (False, 8)):
        controller = controller_of("cheap", overlap=overlap, host_s=1.0)
        observed(controller, 1, 8, 8)
        assert controller.lengths([Proposal(1, 8)], 1, 100) == [length]


def test_a_long_pause_is_not_the_hosts_work() -> None:
    controller = controller_of("cheap")
    controller.paused(60.0)
    assert controller.host_s == 5e-4
    controller.paused(1e-2)
    assert 5e-4 < controller.host_s < 1e-2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3), st.integers(0, 2),
       st.sampled_from(list(TIMES)), st.integers(0, 1 << 20))
def test_no_other_lengths_are_better(drafted: list[tuple[int, int]], more: int, times: str, seed: int) -> None:
    """Of all ways to take drafts of each sequence, the first ones first, and of taking none without the host's time."""
    controller, dice = controller_of(times), random.Random(seed)
    for i, (_, accepted) in enumerate(drafted):
        for _ in range(dice.randrange(9)):
            controller.observe(i, 3, accepted)
    proposals = [Proposal(i, count) for i, (count, _) in enumerate(drafted)]
    streams = len(drafted) + more

    def seconds(rows: int) -> float:
        each, left = divmod(rows, streams)
        shape = StepShape.over([(each + (i < left), 64) for i in range(streams)], rows)
        return predictor.seconds(shape)

    def rate(lengths: Sequence[int]) -> float:
        tokens = streams + sum(controller.expected(i, n) for i, n in enumerate(lengths))
        return tokens / (seconds(streams + sum(lengths)) + controller.host_s)

    predictor: Predictor = predicting(**TIMES[times])
    best = max(product(*(range(p.drafts + 1) for p in proposals)), key=rate)
    plain = (1 + MARGIN) * streams / seconds(streams)
    chosen = controller.lengths(proposals, streams, 64)
    assert rate(chosen) == pytest.approx(rate(best)) if rate(best) > plain else chosen == [0] * len(proposals)


def test_survival_is_the_share_that_was_accepted() -> None:
    rates = Acceptance(4)
    for i in range(2000):
        rates.observe(4, 1 if i % 2 else 3)
    first, second, third, fourth = rates.survival(4)
    assert first > 0.95
    assert 0.3 < second < 0.7
    assert second * 0.9 < third <= second
    assert fourth < 0.1


def test_drafts_are_compared_with_the_tokens_that_come() -> None:
    log = DraftLog()
    assert log.settle(1, [5]) is None
    log.add(1, 1, [6, 7])
    log.add(1, 1, [9, 9])
    assert log.settle(1, [5]) is None
    assert log.settle(1, [5, 6]) is None
    assert log.settle(1, [5, 6, 7]) == Outcome(2, 2)
    log.add(1, 3, [1, 2, 3])
    assert log.settle(1, [5, 6, 7, 1, 9]) == Outcome(2, 1)
    assert log.settle(1, [5, 6, 7, 1, 9]) is None


class Constant(Drafter):
    def __init__(self, name: str, draft: int) -> None:
        self.name, self.draft = name, draft
        self.forgotten: list[int] = []

    def propose(self, inputs: Sequence[DraftInput]) -> list[list[int]]:
        return [[self.draft] * given.max_drafts for given in inputs]

    def commit(self, verified: Sequence[VerifiedDrafts]) -> None:
        pass

    def method(self, sequence: int) -> str:
        return self.name

    def forget(self, sequence: int) -> None:
        self.forgotten.append(sequence)


def test_each_sequence_has_the_drafter_that_suits_it() -> None:
    parts = {name: Constant(name, draft) for name, draft in (("ones", 1), ("twos", 2))}
    chooser = ChoosingDrafter(parts, 4)
    for n in range(1, 20):
        asked = [DraftInput(1, [1] * n, 4), DraftInput(2, [2] * n, 4)]
        drafts = chooser.propose(asked)
    assert drafts == [[1] * 4, [2] * 4]
    assert [chooser.method(i) for i in (1, 2)] == ["ones", "twos"]
    chooser.forget(1)
    assert all(part.forgotten == [1] for part in parts.values())
