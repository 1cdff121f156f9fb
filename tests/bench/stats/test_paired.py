from __future__ import annotations

import math

import numpy as np
import pytest

from drut.bench.stats.paired import Paired, paired


@pytest.mark.parametrize("rounds", [3, 4, 5, 8])
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_the_interval_holds_the_truth_in_95_of_100_comparisons(rounds: int, tails: str) -> None:
    """Speeds of a machine that drifts by half within the comparison; noise of 5 % between turns, normal or with a turn
    in ten that is hit three times as hard."""
    rng = np.random.default_rng(rounds)
    held, n, truth = 0, 1500, 1.25
    for _ in range(n):
        machine = np.exp(rng.normal(0, 0.5, rounds))
        noise = rng.normal(0, 0.05, (2, rounds))
        if tails == "heavy":
            noise *= np.where(rng.random((2, rounds)) < 0.1, 3.0, 1.0)
        a, b = truth * machine * np.exp(noise[0]), machine * np.exp(noise[1])
        found = paired(dict(enumerate(a)), dict(enumerate(b)))
        assert found is not None
        held += found.low <= truth <= found.high
    assert 0.93 < held / n < 0.985


def test_only_rounds_of_both_count() -> None:
    found = paired({0: 2.0, 1: 2.0, 2: 8.0, 4: 1.0}, {0: 1.0, 1: 1.0, 3: 1.0, 4: 0.5})
    assert found is not None
    assert found.rounds == 3
    assert found.value == found.low == found.high == pytest.approx(2.0)


def test_turning_the_ratio_round_turns_the_interval_round() -> None:
    a, b = {0: 1.0, 1: 1.3, 2: 0.9}, {0: 2.0, 1: 1.9, 2: 2.5}
    one, other = paired(a, b), paired(b, a)
    assert one is not None
    assert other is not None
    assert (1 / one.value, 1 / one.high, 1 / one.low) == pytest.approx((other.value, other.low, other.high))


def test_a_rate_of_0_in_a_round_counts() -> None:
    found = paired({0: 0.0, 1: 1.0, 2: 0.0, 3: 1.0}, {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0})
    assert found is not None
    assert found.value == pytest.approx(0.25)
    assert found.low == 0.0
    assert found.high == pytest.approx(0.25 + 3.18245 * (1 / 3) ** 0.5 / 2 / 2)  # differences of -2, -1, -2, -1
    assert found.apart
    assert paired({0: 1.0, 1: 1.0}, {0: 0.0, 1: 0.0}) is None


def test_one_round_has_no_interval_and_two_give_no_verdict() -> None:
    assert paired({0: 1.0}, {0: 2.0}) is None
    two = paired({0: 1.0, 1: 1.0}, {0: 2.0, 1: 2.0})
    assert two is not None
    assert two.high < 1
    assert not two.apart


def test_no_interval_is_infinite() -> None:
    found = paired({0: 1e-300, 1: 1e300}, {0: 1.0, 1: 1.0})
    assert found is not None
    assert all(math.isfinite(x) for x in found)
    assert not found.apart


def test_equal_rounds_are_apart_only_where_they_differ() -> None:
    assert Paired(1.2, 1.1, 1.3, 3).apart
    assert not Paired(1.2, 0.9, 1.3, 3).apart
