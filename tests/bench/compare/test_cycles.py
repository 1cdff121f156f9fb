"""The rates of closed loops, compared with computed ones."""

from __future__ import annotations

import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drut.bench.compare.cycles import closed_loop_figures
from drut.bench.cost import Price
from drut.bench.load.fleet import LoadResult
from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Slo
from drut.bench.result.build import Billing, build
from drut.bench.result.schema import Result
from tests.bench.records import failed, record


def loop(takes: list[float], window: MeasureWindow, users: int = 1) -> Result:
    """Each user asks again and again, the k-th request for `takes[k % n]` seconds: a long prompt, then 32 tokens within
    a tenth of that."""
    records: list[LoadRecord] = []
    for user in range(users):
        now, k = 0.0, user
        while now < window.end:
            span = takes[k % len(takes)]
            arrivals = [span * (0.9 + 0.1 * i / 31) for i in range(32)]
            records.append(record(now, arrivals, 32, input_tokens=1024, counted=window.holds(now)))
            now, k = now + span, k + 1
    return made(records, window)


def made(records: list[LoadRecord], window: MeasureWindow) -> Result:
    price = Price(datetime.date(2026, 11, 1), "list", per_hour=3.6)
    return build(LoadResult(records, window, [0.1], False, 1.79e9), {}, wanted_s=window.length, slo=Slo(e2e=60.0),
                 most_errors=0.01, billing=Billing(price))


def test_an_answer_of_25_s_has_its_rate_in_a_window_of_40() -> None:
    result = loop([25.0], MeasureWindow(3.0, 43.0, 100.0))
    found = closed_loop_figures(result, 1)
    assert result.summary.output_tokens_per_s == 0.8  # of the clock: one answer in 40 s
    assert found["output_tokens_per_s"] == pytest.approx(32 / 25)
    assert found["input_tokens_per_s"] == pytest.approx(1024 / 25)
    assert found["requests_per_s"] == found["goodput_per_s"] == pytest.approx(1 / 25)
    assert found["cost_per_million_output"] == pytest.approx(1e-3 * 1e6 / (32 / 25))


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 200), st.floats(0, 10), st.floats(0.5, 50), st.integers(1, 5))
def test_no_place_of_the_window_matters(span: float, begin: float, length: float, users: int) -> None:
    result = loop([span], MeasureWindow(begin, begin + length, 1e3), users)
    found = closed_loop_figures(result, users)
    # Times of a result are in thousandths of a millisecond.
    assert not found or found["output_tokens_per_s"] == pytest.approx(users * 32 / span, rel=2e-5)
    assert bool(found) == any(request.measured for request in result.requests)


def test_with_many_answers_it_is_what_the_clock_states() -> None:
    result = loop([0.4, 1.1, 0.7], MeasureWindow(3.0, 300.0, 10.0), users=3)
    assert closed_loop_figures(result, 3)["output_tokens_per_s"] == pytest.approx(
        result.summary.output_tokens_per_s, rel=0.01)


def test_what_the_requests_do_not_report_is_left_to_the_clock() -> None:
    window = MeasureWindow(0.0, 10.0, 5.0)
    well = [record(float(i), [0.5, 1.0], 2) for i in range(5)]
    assert closed_loop_figures(made(well, window), 1)["output_tokens_per_s"] == pytest.approx(2.0)
    assert closed_loop_figures(made([*well, failed(5.0)], window), 1) == {}
    result = made(well, window)
    later = [msgspec.structs.replace(request, turn=1) for request in result.requests]
    assert closed_loop_figures(msgspec.structs.replace(result, requests=later), 1) == {}
    assert closed_loop_figures(msgspec.structs.replace(result, requests=[]), 1) == {}
    untold = [msgspec.structs.replace(request, output_tokens=None) for request in result.requests]
    assert closed_loop_figures(msgspec.structs.replace(result, requests=untold), 1)["output_tokens_per_s"] is None
