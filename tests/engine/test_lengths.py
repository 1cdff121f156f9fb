"""The estimate of lengths is Kaplan and Meier's, whatever is still running."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drut.engine.schedule.lengths import BOUNDS, FRESH, KEPT_ENDS, MIN_ENDS, LengthEstimate

LENGTHS = st.lists(st.integers(1, 5000), min_size=MIN_ENDS, max_size=80)


def told(ended: list[int], cut: list[int] = (), running: list[int] = ()) -> LengthEstimate:  # type: ignore[assignment]
    """An estimate that has looked at all of it: the last end is one at which it looks."""
    estimate = LengthEstimate()
    for length in cut:
        estimate.add(length, ended=False)
    for n, length in enumerate(ended, 1):
        estimate.add(length, ended=True, running=running)
        estimate._new = FRESH if n == len(ended) - 1 else estimate._new
    return estimate


def plain(ended: list[int], cut: list[int], made: int, quantile: float) -> int | None:
    """The same from single lengths: the least one that at most 1 - quantile of those beyond `made` survive."""
    share = 1.0
    for length in sorted({n for n in ended if n > made}):
        at_risk = sum(n >= length for n in (*ended, *cut))
        share *= 1 - ended.count(length) / at_risk
        if share <= (1 - quantile) + 1e-9:
            return length
    return None


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.lists(st.integers(1, 5000), max_size=30), st.lists(st.integers(1, 5000), max_size=30),
       st.integers(0, 6000), st.sampled_from([0.1, 0.5, 0.9]))
@example([1, *[2] * 8, 3, *[4] * 9], [], [], 0, 0.5)
def test_it_is_that_of_single_lengths(ended: list[int], cut: list[int], running: list[int], made: int,
                                      quantile: float) -> None:
    """Lengths that are bounds of buckets, so that nothing is rounded; `made` is one, too."""
    whole = [[min(b for b in BOUNDS if b >= n) for n in lengths] for lengths in (ended, cut, running, [made or 1])]
    ended, cut, running, (made,) = whole
    assert told(ended, cut, running).length(made, quantile) == plain(ended, cut + running, made, quantile)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(0, 5000))
def test_it_grows_with_the_quantile_and_lies_beyond_what_is_made(ended: list[int], made: int) -> None:
    estimate = told(ended)
    lengths = [estimate.length(made, q) for q in (0.1, 0.5, 0.9, 0.99)]
    known = [n for n in lengths if n is not None]
    assert known == sorted(known)
    assert lengths[: len(known)] == known, "what a larger quantile can tell, a smaller one can"
    assert all(n > made for n in known)


def test_before_some_have_ended_nothing_is_known() -> None:
    estimate = LengthEstimate()
    for _ in range(MIN_ENDS - 1):
        estimate.add(10, ended=True)
        assert estimate.length(0, 0.5) is None
    for _ in range(1000):
        estimate.add(10, ended=False)
    assert estimate.length(0, 0.5) is None, "what was cut has not ended"
    estimate.add(10, ended=True)
    assert estimate.length(0, 0.01) is not None


def test_what_runs_is_not_forgotten() -> None:
    """Half of the answers are long and still run when all short ones have ended."""
    ended, running = [10] * 64, [500] * 64
    assert told(ended).length(0, 0.9) == 10
    assert told(ended, running=running).length(0, 0.9) is None
    assert told(ended + [1000] * 8, running=running).length(0, 0.4) == 10


def test_what_was_long_is_not_short_again() -> None:
    """Of answers that are of 10 or 1,000 tokens: beyond 10 it is 1,000."""
    estimate = told([10, 1000] * 50)
    assert estimate.length(0, 0.4) == 10
    assert 1000 <= (estimate.length(11, 0.4) or 0) <= 1091
    assert estimate.length(1200, 0.4) is None
    assert estimate.length(0, 1.0) is None


def test_old_traffic_is_forgotten() -> None:
    dice = random.Random(0)
    estimate = LengthEstimate()
    for _ in range(3 * KEPT_ENDS):
        estimate.add(dice.randrange(800, 1200), ended=True)
    for _ in range(3 * KEPT_ENDS):
        estimate.add(dice.randrange(8, 12), ended=True)
    assert (estimate.length(0, 0.9) or 0) < 20
    assert estimate.ends <= KEPT_ENDS


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_so_many_answers_are_no_longer(quantile: float) -> None:
    """From lengths of one distribution: of others from it, the share within the estimate is the quantile, nearly."""
    dice = random.Random(1)
    estimate = told([int(dice.lognormvariate(5, 1)) + 1 for _ in range(1000)])
    length = estimate.length(0, quantile)
    assert length is not None
    within = sum(int(dice.lognormvariate(5, 1)) + 1 <= length for _ in range(4000)) / 4000
    assert quantile - 0.04 <= within <= quantile + 0.07
