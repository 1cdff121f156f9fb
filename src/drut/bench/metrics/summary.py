"""The summary of a run's records. docs/metrics.md has the definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Slo, Timing
from drut.bench.metrics.series import Arrivals, Concurrency
from drut.bench.stats.distribution import Distribution, Floats

INF = float("inf")


class Errors(msgspec.Struct, frozen=True):
    """The measured requests that failed, as a number and as a share of all measured requests."""

    offered: int
    failed: int
    rate: float | None
    kinds: dict[str, int]


class Summary(msgspec.Struct, frozen=True):
    """The figures of the measured requests (see Window); rates count the events within the window. Times in
    milliseconds."""

    window_s: float
    requests: int
    ttft_ms: Distribution
    ttft_sent_ms: Distribution
    itl_ms: Distribution
    tpot_ms: Distribution
    e2e_ms: Distribution
    queue_ms: Distribution
    output_tokens_per_s: float | None
    input_tokens_per_s: float | None
    requests_per_s: float
    goodput_per_s: float | None
    good_share: float | None
    errors: Errors
    cached_tokens: int | None
    cached_share: float | None
    concurrency_mean: float
    concurrency_max: int
    lag_ms: Distribution
    connect_ms: Distribution


def summarize(records: Sequence[LoadRecord], timings: Sequence[Timing], window: MeasureWindow,
              slo: Slo | None) -> Summary:
    """Summarizes a run. `timings` are in the order of `records`. The window must not be empty."""
    counted = [(r, t) for r, t in zip(records, timings, strict=True) if r.counted]
    own = [r for r, _ in counted]
    edges = np.array([window.begin, window.end])
    flights = Concurrency(records)
    good = sum(slo.good(t) for _, t in counted) if slo is not None else None
    cached, inputs = _cached(own)
    return Summary(
        window_s=window.length,
        requests=len(own),
        ttft_ms=_waits(counted, lambda t: t.ttft),
        ttft_sent_ms=_waits(counted, lambda t: t.ttft_sent),
        itl_ms=_itl(counted),
        tpot_ms=_waits(counted, lambda t: t.tpot),
        e2e_ms=_waits(counted, lambda t: t.e2e),
        queue_ms=Distribution.of([r.queue_s for r in own if r.queue_s is not None], scale=1e3),
        output_tokens_per_s=_output_rate(records, timings, window),
        input_tokens_per_s=_input_rate(records, window),
        requests_per_s=sum(_ended_in(r, window) for r in records) / window.length,
        goodput_per_s=None if good is None else good / window.length,
        good_share=None if good is None or not own else good / len(own),
        errors=_errors(own),
        cached_tokens=cached,
        cached_share=cached / inputs if cached is not None and inputs else None,
        concurrency_mean=float(flights.area(edges)[0]) / window.length,
        concurrency_max=flights.most(window.begin, window.end),
        lag_ms=Distribution.of([lag(r) for r in own if r.sent is not None], scale=1e3),
        connect_ms=Distribution.of([r.connect_s for r in own if r.connect_s > 0], scale=1e3),
    )


def lag(record: LoadRecord) -> float:
    """Returns the seconds by which the client itself was late: from scheduled to sent, without the wait for a new
    connection."""
    assert record.sent is not None
    return record.sent - record.scheduled - record.connect_s


def samples(counted: Sequence[tuple[LoadRecord, Timing]], of: Callable[[Timing], float | None]) -> tuple[Floats, int]:
    """Returns a figure of all requests, infinite for failed ones, and the number of successful requests without the
    figure.

    If no request has the figure although some succeeded, the figure does not exist in this run, and failed requests
    have none either.
    """
    values = [of(t) for _, t in counted if t.ok]
    have = [v for v in values if v is not None]
    failed = sum(not t.ok for _, t in counted)
    if values and not have:
        return np.zeros(0), len(values)
    return np.array([*have, *[INF] * failed]), len(values) - len(have)


def itl_samples(counted: Sequence[tuple[LoadRecord, Timing]]) -> tuple[Floats, int]:
    """Returns the gaps before all tokens except the first ones, over all requests. A failed request has one infinite
    gap."""
    gaps = [t.itl for _, t in counted if t.ok and t.tpot is not None]
    well, failed = sum(t.ok for _, t in counted), sum(not t.ok for _, t in counted)
    if well and not gaps:
        return np.zeros(0), well
    return np.concatenate((*gaps, np.full(failed, INF))), well - len(gaps)


def _waits(counted: Sequence[tuple[LoadRecord, Timing]], of: Callable[[Timing], float | None]) -> Distribution:
    return Distribution.of(*samples(counted, of), scale=1e3)


def _itl(counted: Sequence[tuple[LoadRecord, Timing]]) -> Distribution:
    return Distribution.of(*itl_samples(counted), scale=1e3)


def _output_rate(records: Sequence[LoadRecord], timings: Sequence[Timing], window: MeasureWindow) -> float | None:
    arrivals = Arrivals(records, timings)
    if arrivals.unknown:
        return None
    return float(arrivals.within(np.array([window.begin, window.end]))[0]) / window.length


def _input_rate(records: Sequence[LoadRecord], window: MeasureWindow) -> float | None:
    read = [input_tokens(r) for r in records if r.arrivals and window.holds(r.arrivals[0])]
    known = [n for n in read if n is not None]
    return None if len(known) < len(read) else sum(known) / window.length


def input_tokens(record: LoadRecord) -> int | None:
    """Returns the number by the server, otherwise by the workload."""
    return record.input_tokens if record.input_tokens is not None else record.expected_input_tokens


def _cached(records: Sequence[LoadRecord]) -> tuple[int | None, int]:
    """Returns the tokens found in the server's prefix cache, None if it never reports them, and the prompt tokens of
    the requests that report both."""
    reported = [(r.cached_tokens, r.input_tokens) for r in records
            if r.cached_tokens is not None and r.input_tokens is not None]
    return (sum(c for c, _ in reported) if reported else None), sum(n for _, n in reported)


def _ended_in(record: LoadRecord, window: MeasureWindow) -> bool:
    return record.failure is None and record.ended is not None and window.holds(record.ended)


def _errors(records: Sequence[LoadRecord]) -> Errors:
    kinds = Counter(r.failure for r in records if r.failure is not None)
    failed = kinds.total()
    return Errors(len(records), failed, failed / len(records) if records else None,
                  {str(kind): count for kind, count in sorted(kinds.items())})
