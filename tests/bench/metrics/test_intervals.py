from __future__ import annotations

import numpy as np
import pytest

from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.intervals import Intervals, intervals
from drut.bench.metrics.request import Slo, timing
from tests.bench.records import failed, record

WINDOW = MeasureWindow(2.0, 32.0, 5.0)


def run(seed: int, rate: float = 10.0, mean_s: float = 0.2) -> list[LoadRecord]:
    """Poisson arrivals, exponential waits for the first of three tokens."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, 34, rng.poisson(34 * rate)))
    waits = rng.exponential(mean_s, len(times))
    return [record(t, [w, w + 0.01, w + 0.02], 3, counted=WINDOW.holds(t)) for t, w in zip(times, waits, strict=True)]


def of(records: list[LoadRecord], window: MeasureWindow = WINDOW) -> Intervals:
    return intervals(records, [timing(r) for r in records], window, Slo(ttft=0.2))


@pytest.mark.slow
def test_intervals_cover_what_is_true() -> None:
    covered = {"ttft_ms_p50": 0, "output_tokens_per_s": 0, "goodput_per_s": 0}
    truth = {"ttft_ms_p50": 200 * np.log(2), "output_tokens_per_s": 30.0, "goodput_per_s": 10 * (1 - np.exp(-1))}
    for seed in range(40):
        figures = of(run(seed)).figures
        for name, true in truth.items():
            covered[name] += figures[name].low <= true <= figures[name].high
    assert all(count >= 33 for count in covered.values()), covered  # 38 are meant; 33 is 3 standard errors below


def test_two_runs_of_the_same_are_within_the_noise_floor_and_two_that_differ_by_more_are_not() -> None:
    a, b = (of(run(seed)).figures["ttft_ms_p50"] for seed in (1, 2))
    slower = of(run(3, mean_s=0.4)).figures["ttft_ms_p50"]
    assert abs(a.value - b.value) / a.value < a.noise_floor < 0.6
    assert abs(a.value - slower.value) / a.value > a.noise_floor


def test_the_noise_floor_is_of_a_difference() -> None:
    """Of two figures with the same error, which is the square root of 2 times as wide."""
    for figure in of(run(1)).figures.values():
        half = (figure.high - figure.low) / 2
        assert figure.noise_floor == pytest.approx(1.4142136 * half / figure.value)


def test_more_time_is_a_lower_floor() -> None:
    records = run(5)
    half = MeasureWindow(2.0, 17.0, 5.0)
    for r in records:
        r.counted = half.holds(r.scheduled)
    short = of(records, half).figures["output_tokens_per_s"].noise_floor
    assert of(run(5)).figures["output_tokens_per_s"].noise_floor < short


def test_what_comes_in_waves_is_less_sure_than_its_number_of_requests_states() -> None:
    """Requests of one wave resemble each other: resampled one by one they would look 5 times as sure."""
    rng = np.random.default_rng(4)
    waits = np.repeat(rng.exponential(0.2, 30), 25)
    times = 2 + np.repeat(np.arange(30), 25) + np.tile(np.arange(25) / 25, 30)
    records = [record(t, [w], 1) for t, w in zip(times, waits, strict=True)]
    blocks = of(records).figures["ttft_ms_p50"]
    single = np.median(rng.choice(waits, (500, len(waits))), 1) * 1e3
    assert blocks.high - blocks.low > 2 * (np.quantile(single, 0.975) - np.quantile(single, 0.025))


@pytest.mark.parametrize(("rate", "there"), [(1.5, {"p50"}), (4.0, {"p50", "p95"}), (20.0, {"p50", "p95", "p99"})])
def test_a_percentile_of_few_requests_has_none(rate: float, there: set[str]) -> None:
    """30 s of them: 45 are too few for p95, 120 for p99."""
    figures = of(run(2, rate)).figures
    assert {name.removeprefix("ttft_ms_") for name in figures if name.startswith("ttft_ms_")} == there


def test_failures_open_the_interval() -> None:
    records = run(1) + [failed(3 + i * 0.1) for i in range(270)]
    found = of(records).figures["ttft_ms_p95"]
    assert (found.value, found.high, found.noise_floor) == ("inf", "inf", None)


def test_a_window_too_short_has_none() -> None:
    assert of(run(1), MeasureWindow(2.0, 11.0, 5.0)).figures == {}
