"""Builds the result of a run from its records and measurements."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from drut import __version__
from drut.bench.cost import Price, ResourceUsage, cost
from drut.bench.load.fleet import LoadResult
from drut.bench.metrics.intervals import intervals
from drut.bench.metrics.request import Slo, timing
from drut.bench.metrics.series import Arrivals, Concurrency, seconds_of
from drut.bench.metrics.summary import Summary, samples, summarize
from drut.bench.metrics.tokens import CountTokens
from drut.bench.result.schema import SCHEMA, ClientRecord, Result, Series, requests
from drut.bench.result.validity import validity
from drut.bench.stats.samples import Claim, claims
from drut.bench.stats.steady import steady
from drut.bench.watch import Watched
from drut.errors import DrutError
from drut.machine import cpu_model, usable_cpus


class Billing(NamedTuple):
    """A price, and the share of the busy time charged to prompts; None: unknown."""

    price: Price
    input_busy_share: float | None = None


def build(load: LoadResult, settings: dict[str, Any], *, wanted_s: float, slo: Slo | None, most_errors: float,
          count: CountTokens | None = None, arrivals: bool = True, watched: Watched | None = None,
          billing: Billing | None = None, missing: int = 0) -> Result:
    """Builds the result. `wanted_s` and `missing` are those of `validity`. `count` is the target's tokenizer, for
    servers that report no usage."""
    if not load.window.length:
        raise DrutError(f"nothing was measured: {load.halted or 'the workload ended before the warm-up did'}")
    records, window = load.records, load.window
    timings = [timing(record, count) for record in records]
    summary = summarize(records, timings, window, slo)
    edges = seconds_of(window)
    tokens, flights = Arrivals(records, timings).within(edges), Concurrency(records).area(edges)
    counted = [(r, t) for r, t in zip(records, timings, strict=True) if r.counted]
    reported: dict[str, list[Claim]] = {}
    for name in ("ttft", "tpot", "e2e"):
        values, _ = samples(counted, lambda t, name=name: getattr(t, name))  # type: ignore[misc]
        if len(values):
            reported[f"{name}_ms"] = claims(np.sort(values) * 1e3)
    return Result(
        schema=SCHEMA, settings=settings, environment=environment(load.started_at),
        validity=validity(summary, load, wanted_s, most_errors, missing), steady=steady(tokens, flights),
        summary=summary,
        claims=reported, intervals=intervals(records, timings, window, slo),
        series=Series(window.begin, [round(float(x), 2) for x in tokens], [round(float(x), 3) for x in flights]),
        client=ClientRecord(len(load.cpu), [round(use, 4) for use in load.cpu]),
        requests=requests(records, timings, slo, arrivals), watched=watched,
        cost=None if billing is None else cost(billing.price, _usage(summary, billing.input_busy_share)))


def _usage(summary: Summary, input_busy_share: float | None) -> ResourceUsage:
    """Returns the usage within the window. Tokens without a known number are None and have no price."""
    seconds = summary.window_s
    inputs, outputs = (round((rate or 0.0) * seconds) for rate in (summary.input_tokens_per_s,
                                                                    summary.output_tokens_per_s))
    return ResourceUsage(seconds=seconds, requests=round(summary.requests_per_s * seconds), input_tokens=inputs,
                         cached_tokens=round(inputs * (summary.cached_share or 0.0)), output_tokens=outputs,
                         input_busy_share=input_busy_share)


def environment(started_at: float) -> dict[str, Any]:
    """Describes the client's machine; `started_at` is in seconds of the Unix clock."""
    return {"drut": __version__, "python": platform.python_version(), "system": platform.platform(), "cpu": cpu_model(),
            "cpus": len(usable_cpus()), "event_loop": "uvloop" if find_spec("uvloop") else "asyncio",
            "started": datetime.fromtimestamp(started_at, UTC).isoformat(timespec="seconds")}
