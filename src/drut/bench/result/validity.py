"""Decides when a run is void: when its figures would describe the client instead of the server."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drut.bench.load.fleet import LoadResult
from drut.bench.load.record import LoadRecord
from drut.bench.metrics.summary import Summary, lag
from drut.bench.result.schema import Validity
from drut.bench.stats.distribution import percentile

NONE_FINISHED = "no request finished"
LAG_MS, LAG_SHARE = 5.0, 0.02
BURST_LAG_SHARE = 0.1  # if all requests are due at once, one must be the last to be sent
MAX_CPU, BUSY_CPU = 0.8, 0.4
_P99_NEEDS, _ONE_MAY = 100, 20  # requests


def validity(summary: Summary, load: LoadResult, wanted_s: float, most_errors: float, missing: int = 0) -> Validity:
    """Returns the validity. `wanted_s` is the requested length of the window; `most_errors` is the maximum share of
    failures of a valid run; `missing` is the number of requests by which the workload was too short."""
    reasons = []
    limit = LAG_MS
    if isinstance(summary.ttft_ms.p50, float):
        limit = max(limit, (BURST_LAG_SHARE if load.at_once else LAG_SHARE) * summary.ttft_ms.p50)
    busy = max(load.cpu, default=0.0) > BUSY_CPU
    advice = "more --workers, or less load" if busy else "fewer other processes on this machine"
    name, late = _lateness(load.records)
    if late > limit:
        reasons.append(f"the client sent late: {name} of sent - scheduled is {late:.1f} ms, the maximum is "
                       f"{limit:.1f} ms ({advice})")
    if max(load.cpu, default=0.0) > MAX_CPU:
        reasons.append(f"a client process used {max(load.cpu):.0%} of a CPU, the maximum is {MAX_CPU:.0%} "
                       "(more --workers, or less load)")
    of_client = len(reasons)
    if load.halted is not None:
        reasons.append(load.halted)
    if load.behind:
        reasons.append("the workload was not made fast enough for the schedule")
    if not summary.requests:
        reasons.append("no request was scheduled within the measured window (a longer --duration, or no --warmup)")
    elif summary.errors.failed == summary.requests:
        reasons.append(f"{NONE_FINISHED}, for example: {_first_failure(load.records)}")
    elif (summary.errors.rate or 0.0) > most_errors:
        reasons.append(f"{summary.errors.failed} of {summary.requests} requests failed, the maximum is "
                       f"{most_errors:.1%} ({', '.join(f'{kind} {n}' for kind, n in summary.errors.kinds.items())})")
    if load.halted is None and load.window.length < 0.9 * wanted_s:
        reasons.append(f"the workload ended after {load.window.length:.1f} of {wanted_s:.1f} s (a shorter --duration, "
                       "or an endless workload)")
    if load.halted is None and missing > 0:
        reasons.append(f"the workload has {missing} requests less than --num-requests")
    return Validity(not reasons, reasons, held_up=0 < len(reasons) == of_client)


def _first_failure(records: Sequence[LoadRecord]) -> str:
    """Returns the failure as its record describes it."""
    return next(f"{r.failure}, {r.detail}" for r in records if r.counted and r.failure is not None)


def _lateness(records: Sequence[LoadRecord]) -> tuple[str, float]:
    """Returns the quantity that measures the client's own delay, and its milliseconds: p99, which for fewer than a
    hundred requests would be the maximum. Of twenty or more requests one may be late: otherwise a server that completes
    more would be void more often."""
    lags = np.sort([lag(r) * 1e3 for r in records if r.counted and r.sent is not None])
    if len(lags) >= _P99_NEEDS:
        return "p99", percentile(lags, 99)
    if len(lags) >= _ONE_MAY:
        return f"the second latest of {len(lags)}", float(lags[-2])
    return f"the latest of {len(lags)}", float(lags[-1]) if len(lags) else 0.0
