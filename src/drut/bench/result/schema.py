"""The schema of `result.json`. docs/bench.md describes it; SCHEMA changes when a field is removed or changes its
meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from drut.bench.cost import ServingCost
from drut.bench.load.record import Failure, LoadRecord
from drut.bench.metrics.intervals import Intervals
from drut.bench.metrics.request import Slo, Timing
from drut.bench.metrics.summary import Summary, input_tokens
from drut.bench.stats.samples import Claim
from drut.bench.stats.steady import Steady
from drut.bench.watch import Watched

SCHEMA = "drut.bench/1"


class Validity(msgspec.Struct, frozen=True):
    """The validity of a run. The figures of a void run may not be quoted; `reasons` explain. `held_up`: the only reason
    is that the client was late or overloaded, so another try may succeed."""

    valid: bool
    reasons: list[str]
    held_up: bool = False


class Series(msgspec.Struct, frozen=True):
    """Values for each whole second of the window; `begin_s` is its begin, from the start of the load."""

    begin_s: float
    output_tokens: list[float]
    in_flight: list[float]


class ClientRecord(msgspec.Struct, frozen=True):
    """The load on the client's machine: each client process's use of one CPU within the window."""

    workers: int
    cpu: list[float]


class ReportRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request. Times in milliseconds: `scheduled_ms` from the start of the load, the others from `scheduled_ms`.
    Fields that do not apply are omitted."""

    session: str
    turn: int
    scheduled_ms: float
    measured: bool
    sent_ms: float | None = None
    connect_ms: float = 0.0
    ended_ms: float | None = None
    ttft_ms: float | None = None
    ttft_sent_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    input_tokens: int | None = None
    expected_input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    max_tokens: int = 0
    queue_ms: float | None = None
    finish_reason: str | None = None
    status: int | None = None
    failure: Failure | None = None
    detail: str = ""
    good: bool | None = None
    arrivals_ms: list[float] | None = None
    arrival_chars: list[int] | None = None
    arrival_reported: list[int] | None = None

    @classmethod
    def of(cls, record: LoadRecord, timing: Timing, slo: Slo | None, arrivals: bool) -> ReportRequest:
        """Converts a record. `arrivals`: include every piece of the response."""
        start = record.scheduled
        return cls(
            session=record.session, turn=record.turn, scheduled_ms=_ms(start), measured=record.counted,
            sent_ms=_after(start, record.sent), connect_ms=_ms(record.connect_s), ended_ms=_after(start, record.ended),
            ttft_ms=_maybe(timing.ttft), ttft_sent_ms=_maybe(timing.ttft_sent), tpot_ms=_maybe(timing.tpot),
            e2e_ms=_maybe(timing.e2e), input_tokens=input_tokens(record), cached_tokens=record.cached_tokens,
            expected_input_tokens=record.expected_input_tokens, output_tokens=timing.tokens,
            max_tokens=record.max_tokens, queue_ms=_maybe(record.queue_s), finish_reason=record.finish_reason,
            status=record.status, failure=record.failure, detail=record.detail,
            good=None if slo is None else slo.good(timing),
            arrivals_ms=[_ms(t - start) for t in record.arrivals] if arrivals else None,
            arrival_chars=record.chars if arrivals else None,
            arrival_reported=record.reported if arrivals and max(record.reported, default=-1) >= 0 else None,
        )


class Result(msgspec.Struct, frozen=True):
    """The whole file."""

    schema: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    validity: Validity
    steady: Steady
    summary: Summary
    claims: dict[str, list[Claim]]
    intervals: Intervals
    series: Series
    client: ClientRecord
    requests: list[ReportRequest]
    watched: Watched | None = None
    cost: ServingCost | None = None


def requests(records: Sequence[LoadRecord], timings: Sequence[Timing], slo: Slo | None,
             arrivals: bool) -> list[ReportRequest]:
    """Converts all requests of a run, in the order of their scheduled times."""
    return [ReportRequest.of(record, timing, slo, arrivals) for record, timing in zip(records, timings, strict=True)]


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def _maybe(seconds: float | None) -> float | None:
    return None if seconds is None else _ms(seconds)


def _after(start: float, moment: float | None) -> float | None:
    return None if moment is None else _ms(moment - start)
