"""Token times: as in the script, and the same for the same seed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from drut.bench.mock import parse_script
from drut.bench.mock.times import chance, draw, token_times


def times(tokens: int = 5, request: int = 0, uncached: int = 10, **fields: Any) -> list[float]:
    script = parse_script(fields)
    return token_times(script, request, tokens, uncached, chance(script.seed, request))


CONSTANT = {"ttft": {"kind": "constant", "ms": 50}, "itl": {"kind": "constant", "ms": 10}}


def test_constant() -> None:
    assert times(**CONSTANT) == pytest.approx([0.05, 0.06, 0.07, 0.08, 0.09])
    assert times(1, **CONSTANT) == pytest.approx([0.05])


def test_a_cycle_of_ttft_goes_by_request_and_one_of_itl_by_token() -> None:
    fields = {"ttft": {"kind": "cycle", "ms": [1, 2, 3]}, "itl": {"kind": "cycle", "ms": [10, 20]}}
    assert [times(1, request=i, **fields)[0] for i in range(4)] == pytest.approx([0.001, 0.002, 0.003, 0.001])
    assert np.diff(times(request=2, **fields)) == pytest.approx([0.01, 0.02, 0.01, 0.02])


def test_by_prompt() -> None:
    assert times(1, uncached=100, ttft={"kind": "by_prompt", "base_ms": 5, "per_token_ms": 0.5}) == [0.055]


def test_a_stall_moves_all_later_tokens_of_every_nth_request() -> None:
    stalls = [{"after_tokens": 2, "ms": 100, "every": 3}]
    assert times(request=1, stalls=stalls, **CONSTANT) == times(**CONSTANT)
    assert times(request=2, stalls=stalls, **CONSTANT) == pytest.approx([0.05, 0.06, 0.17, 0.18, 0.19])
    assert times(2, request=2, stalls=stalls, **CONSTANT) == pytest.approx([0.05, 0.06])


def test_a_slow_start_is_of_the_first_requests() -> None:
    start = {"requests": 2, "extra_ms": 500}
    assert [times(1, request=i, start=start, **CONSTANT)[0] for i in range(3)] == pytest.approx([0.55, 0.55, 0.05])


@pytest.mark.parametrize(("time", "median"), [
    ({"kind": "uniform", "low_ms": 10, "high_ms": 30}, 0.02),
    ({"kind": "lognormal", "median_ms": 10, "sigma": 0.5}, 0.01),
])
def test_random_times_have_their_median_and_follow_the_seed(time: dict[str, Any], median: float) -> None:
    gaps = np.diff(times(4001, itl=time))
    # The median of n draws has a standard error of about spread / sqrt(n); 5 % is five of them at the least.
    assert np.median(gaps) == pytest.approx(median, rel=0.05)
    assert times(9, itl=time) == times(9, itl=time)
    different = [times(9, itl=time), times(9, itl=time, seed=1), times(9, itl=time, request=1)]
    assert all(a != b for a, b in itertools.combinations(different, 2))


def test_sigma_is_the_deviation_of_the_logarithm() -> None:
    script = parse_script({"itl": {"kind": "lognormal", "median_ms": 10, "sigma": 0.5}})
    values = draw(script.itl, 0, 4000, 0, chance(0, 0))
    assert np.std(np.log(values)) == pytest.approx(0.5, rel=0.05)  # its standard error is 1 %
