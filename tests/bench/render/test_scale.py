"""Places on a plot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drut.bench.render.page.scale import label, linear, logarithmic, nice

values = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=8)


@given(values, st.booleans())
def test_all_lies_between_the_ends_and_in_order(found: list[float], log: bool) -> None:
    scale = (logarithmic if log else linear)(found, 40.0, 390.0)
    places = [scale(v) for v in sorted(found)]
    assert all(40.0 <= place <= 390.0 for place in places)
    assert places == sorted(places)
    ticks = scale.ticks(6)
    assert len(ticks) <= 12
    assert ticks == sorted(ticks)
    assert all(40 - 1e-6 <= scale(t) <= 390 + 1e-6 for t in ticks)


def test_ticks_are_round() -> None:
    assert linear([95.0], 0, 1).ticks(6) == [0, 50, 100]
    assert logarithmic([3.0, 900.0], 0, 1).ticks(6) == [3, 10, 30, 100, 300, 1000]
    assert logarithmic([90.0, 130.0], 0, 1).ticks(6) == [90, 100, 110, 120, 130]
    assert nice(0.23) == 0.5
    assert nice(2.0) == 2.0


def test_labels_are_short() -> None:
    assert [label(v) for v in (0, 0.25, 1500, 20000, 3e6, 1e-9, 1e12)] == [
        "0", "0.25", "1,500", "20k", "3M", "1e-09", "1e+12"]
