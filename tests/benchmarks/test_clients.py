"""Whether a client keeps up is judged by arrivals alone, and the search finds where it stops."""

from __future__ import annotations

import math

import pytest
from benchmarks.serving.clients import Trial, capacity, judge

from drut.bench.mock import Served


def served(arrivals: list[float], outcome: str = "ok", tokens: int = 4) -> list[Served]:
    return [Served(request=i, arrived_s=at, started_s=at, due_first_s=at, first_s=at, last_s=at, ended_s=at,
                   prompt_tokens=1, tokens=tokens, outcome=outcome) for i, at in enumerate(arrivals)]


STEADY = [10 + i / 50 for i in range(400)]


def test_a_steady_client_keeps_up() -> None:
    achieved, late, keeps_up = judge(served(STEADY), 50, 400, 4)
    assert (achieved, late, keeps_up) == (pytest.approx(50), pytest.approx(0, abs=1e-9), True)


def test_a_slow_start_is_forgiven_and_a_slow_drift_is_not() -> None:
    assert judge(served([0.0, *STEADY[1:]]), 50, 400, 4)[2]
    achieved, _, keeps_up = judge(served([10 + i / 48 for i in range(400)]), 50, 400, 4)
    assert achieved == pytest.approx(48)
    assert not keeps_up


def test_a_pause_that_it_catches_up_with_is_late_all_the_same() -> None:
    paused = [max(at, 14.0) if 13.5 < at < 14.0 else at for at in STEADY]
    achieved, late, keeps_up = judge(served(paused), 50, 400, 4)
    assert achieved == pytest.approx(50)
    assert late > 0.3
    assert not keeps_up


@pytest.mark.parametrize("records", [[], served(STEADY[:399]), served(STEADY, "gone"), served(STEADY, tokens=3)])
def test_what_did_not_arrive_or_was_not_answered_in_full_fails(records: list[Served]) -> None:
    assert not judge(records, 50, 400, 4)[2]


@pytest.mark.parametrize("limit", [20, 25, 130, 777, 10_000])
def test_the_search_ends_within_a_step_of_the_limit(limit: float) -> None:
    def try_rate(rate: float) -> Trial:
        return Trial(rate=rate, arrived=0, achieved=0, late_p99_s=0, keeps_up=rate <= limit, tokens=0, cpu_s=0,
                     server_cpus=0)

    found, trials = capacity(try_rate, 25, 1600, 3)
    if limit < 25:
        assert (found, len(trials)) == (0, 1)
    elif limit >= 1600:
        assert found == 1600
    else:
        assert found <= limit < found * 2 ** (1 / 8) + 1e-9
        assert all(math.isfinite(trial.rate) for trial in trials)
