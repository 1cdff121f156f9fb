from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drut.observe.histogram import Histogram, spread


@given(values=st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5))))
def test_values_are_counted_in_the_bucket_that_holds_them(values):
    bounds = spread(0.01, 10.0)
    histogram = Histogram(bounds)
    for value, times in values:
        histogram.add(value, times)
    edges = [float("-inf"), *bounds, float("inf")]
    for i, count in enumerate(histogram.counts):
        assert count == sum(times for value, times in values if edges[i] < value <= edges[i + 1])
    assert abs(histogram.total - sum(value * times for value, times in values)) < 1e-6


def test_bounds_go_by_decades():
    assert spread(0.001, 1.0) == [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    assert spread(0.3, 30.0, (1.0, 3.0)) == [0.3, 1.0, 3.0, 10.0, 30.0]
