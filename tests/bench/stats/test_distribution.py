from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.stats.distribution import PERCENTS, Distribution, percentile

values = st.lists(st.one_of(st.floats(0, 1e6), st.just(math.inf)), min_size=1, max_size=60)


@given(values, st.integers(1, 100))
def test_a_percentile_is_the_least_sample_that_so_many_do_not_exceed(samples: list[float], percent: int) -> None:
    found = percentile(np.sort(samples), percent)
    naive = next(x for x in sorted(samples) if 100 * sum(y <= x for y in samples) >= percent * len(samples))
    assert found == naive


@given(values)
def test_a_distribution_of_any_samples(samples: list[float]) -> None:
    d = Distribution.of(samples, unmeasured=2, scale=2.0)
    finite = [x for x in samples if math.isfinite(x)]
    assert (d.n, d.failed, d.unmeasured) == (len(samples), len(samples) - len(finite), 2)
    assert d.mean == (pytest.approx(2 * sum(finite) / len(finite)) if finite else None)
    for percent in PERCENTS:
        want = 2 * percentile(np.sort(samples), percent)
        assert getattr(d, f"p{percent}") == ("inf" if math.isinf(want) else want)


def test_nothing_has_no_figures_and_not_a_number_is_no_sample() -> None:
    assert Distribution.of([]) == Distribution()
    assert Distribution().p50 is None
    with pytest.raises(ValueError, match="not a number"):
        Distribution.of([1.0, math.nan])
