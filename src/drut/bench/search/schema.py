"""The schema of `search.json`. SCHEMA changes when a field is removed or changes its meaning."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "drut.search/1"

Phase = Literal["curve", "bracket", "bisect", "saturate", "verify"]


class Point(msgspec.Struct, frozen=True):
    """One run of the search. One of `rate` (sessions a second) and `concurrency` is set. `good_share`: requests that
    met the limits, as a share of those offered, with its 95 % Wilson interval. `figures` are those of
    `drut.bench.result.figures`.

    `holds` is the verdict on this rate after this run, from all runs at it. `effective` is the number of independent
    requests that this run is worth, which sets the width of the interval. `served_per_s`: requests completed in a
    second, each weighted with the share of its time within the window.
    """

    phase: Phase
    rate: float | None
    concurrency: int | None
    offered: int
    good: int | None
    good_share: float | None
    good_low: float | None
    good_high: float | None
    holds: bool | None
    valid: bool
    reasons: list[str]
    figures: dict[str, float | Literal["inf"] | None]
    effective: float | None = None
    served_per_s: float | None = None
    e2e_ms_mean: float | None = None
    steady: str = ""
    warmup_s: float = 0.0
    window_s: float = 0.0


class SearchAnswer(msgspec.Struct, frozen=True):
    """A result of the search with its bracket; `value` None: not found, and `why`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""


class Search(msgspec.Struct, frozen=True):
    """The whole file. `saturation`: completed requests a second while work always waits. `knee`: the rate above which
    latency grows faster than throughput. `slo_rate`: the highest rate that meets the limits: `value` from all runs,
    `low` the highest that held by its lower bound, `high` the lowest that did not by its upper bound."""

    schema: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    target: str
    points: list[Point]
    saturation: SearchAnswer
    knee: SearchAnswer
    slo_rate: SearchAnswer
    notes: list[str] = []
    saturation_tokens_per_s: float | None = None
    ended: str = ""  # the reason of an early end; "running" until the search ends
    turns: float | None = None  # requests of a session; None in files without it
