from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Slo, timing
from drut.bench.metrics.series import Arrivals, Concurrency
from drut.bench.metrics.summary import Summary, summarize
from drut.bench.stats.distribution import Distribution
from tests.bench.records import failed, record

WINDOW = MeasureWindow(10.0, 20.0, 5.0)


def summary(records: list[LoadRecord], slo: Slo | None = None) -> Summary:
    return summarize(records, [timing(r) for r in records], WINDOW, slo)


def test_failures_are_infinite_waits_and_are_not_dropped() -> None:
    """Half of the requests fail: the median of those that did not would look fine."""
    s = summary([record(11.0, [0.1, 0.2], 2), record(12.0, [0.1, 0.2], 2), record(13.0, [0.1, 0.2], 2),
                 failed(14.0), failed(15.0, "timeout"), failed(16.0), failed(17.0, "cut", arrivals=[17.05],
                                                                             chars=[1], reported=[-1])])
    assert s.ttft_ms.p50 == "inf"
    assert s.ttft_ms.mean == pytest.approx(100)
    assert (s.ttft_ms.n, s.ttft_ms.failed) == (7, 4)
    assert (s.e2e_ms.p50, s.tpot_ms.p50) == ("inf", "inf")
    assert (s.itl_ms.n, s.itl_ms.failed) == (7, 4)
    assert (s.errors.offered, s.errors.failed, s.errors.rate) == (7, 4, pytest.approx(4 / 7))
    assert s.errors.kinds == {"cut": 1, "http": 2, "timeout": 1}


def test_without_streaming_there_is_nothing_and_not_zero() -> None:
    s = summary([record(11.0 + i, [1.0], 5, streamed=False) for i in range(4)] + [failed(16.0)])
    for d in (s.ttft_ms, s.ttft_sent_ms, s.itl_ms, s.tpot_ms):
        assert d == Distribution(unmeasured=4)
    assert (s.e2e_ms.n, s.e2e_ms.p50, s.e2e_ms.p99) == (5, pytest.approx(1000), "inf")


def test_goodput_divides_by_what_was_offered() -> None:
    s = summary([record(11.0, [0.1, 0.2], 2), record(12.0, [0.1, 0.2], 2), record(13.0, [0.9, 1.0], 2), failed(14.0)],
                Slo(ttft=0.5))
    assert s.goodput_per_s == pytest.approx(0.2)
    assert s.good_share == 0.5


def test_rates_are_of_the_window_whoever_the_request_was() -> None:
    """Neither the drain after the window nor requests that it cuts off may lower them."""
    s = summary([
        record(9.0, [0.5, 1.5, 2.5], 3, counted=False, input_tokens=100),  # two tokens in the window
        record(19.0, [0.5, 1.5], 2, input_tokens=30),  # one token, and it ends after the window
        record(19.0, [0.5, 1.5], None, failure="unfinished", input_tokens=None, expected_input_tokens=20),
    ])
    assert s.output_tokens_per_s == pytest.approx((2 + 1 + 1) / 10)
    assert s.input_tokens_per_s == pytest.approx((30 + 20) / 10)
    assert s.requests_per_s == pytest.approx(1 / 10)
    assert s.requests == 2


def test_unknown_numbers_of_tokens_make_no_figure() -> None:
    s = summary([record(11.0, [0.5, 1.5], None)])
    assert s.output_tokens_per_s is None
    assert s.input_tokens_per_s is None
    assert s.cached_tokens is None


def test_cached_tokens_and_queue_are_of_those_who_tell() -> None:
    s = summary([record(11.0, [0.5], 1, cached_tokens=40, input_tokens=50, queue_s=0.2),
                 record(12.0, [0.5], 1, cached_tokens=0, input_tokens=50), record(13.0, [0.5], 1, input_tokens=999)])
    assert (s.cached_tokens, s.cached_share) == (40, 0.4)
    assert (s.queue_ms.n, s.queue_ms.p50) == (1, pytest.approx(200))


def test_lag_is_the_clients_own() -> None:
    s = summary([record(11.0, [0.5], 1, sent=11.03, connect_s=0.02)])
    assert s.lag_ms.p50 == pytest.approx(10)
    assert s.connect_ms.p50 == pytest.approx(20)


flights = st.lists(st.tuples(st.floats(0, 30), st.floats(0.01, 15)), min_size=1, max_size=20)


@given(flights)
def test_concurrency_is_weighted_by_time(spans: list[tuple[float, float]]) -> None:
    records = [record(a, ended=a + length) for a, length in spans]
    edges = np.array([10.0, 12.0, 20.0])
    got = Concurrency(records).area(edges)
    want = [sum(max(0.0, min(a + n, e) - max(a, b)) for a, n in spans) for b, e in ((10, 12), (12, 20))]
    assert got == pytest.approx(want, abs=1e-9)
    grid = np.linspace(10, 20, 3001)[:-1]
    assert Concurrency(records).most(10.0, 20.0) >= max(
        sum(a <= t < a + n for a, n in spans) for t in grid)


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 9)), max_size=20))
def test_no_token_is_lost_between_seconds(answers: list[tuple[float, int]]) -> None:
    records = [record(a, [0.0, 0.5], n + 1) for a, n in answers]
    arrivals = Arrivals(records, [timing(r) for r in records])
    assert arrivals.within(np.arange(0.0, 23.0)).sum() == pytest.approx(sum(n + 1 for _, n in answers))
