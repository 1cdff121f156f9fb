"""Bounds stay on the safe side of what a float can hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drut.constrain import numbers
from drut.constrain.numbers import BOUNDS, MAX_BOUND, UPPER

NUMBERS = st.one_of(st.integers(-(2**64), 2**64), st.integers(-10, 10).map(lambda n: 2**63 + n),
                    st.integers(-10, 10).map(lambda n: n - 2**63), st.floats(-1e300, 1e300))


@given(st.sampled_from(BOUNDS), NUMBERS)
def test_a_bound_never_allows_more(key: str, value: float) -> None:
    if value < -MAX_BOUND if key in UPPER else value > MAX_BOUND:
        return
    made = numbers.bound(key, value)
    assert isinstance(made, int | float)
    assert int(float(made)) == int(made)  # what the library reads
    assert made <= value if key in UPPER else made >= value
    assert numbers.bound(key, made) == made
    assert abs(made) <= MAX_BOUND


@given(st.integers(-(2**53), 2**53), st.sampled_from(BOUNDS))
def test_ordinary_ones_stay_as_they_are(value: int, key: str) -> None:
    assert numbers.bound(key, value) is value
    numbers.check_exact("const", [{"a": value}, True, None, 0.5])
