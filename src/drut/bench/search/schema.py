"""`search.json`, as data. SCHEMA changes when a field changes its meaning or goes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "drut.search/1"

Phase = Literal["curve", "bracket", "bisect", "saturate", "verify"]


class Point(msgspec.Struct, frozen=True):
    """One run of the search. One of `rate` (sessions a second) and `concurrency` is given. `good_share`: requests that
    held the limits, of those offered, with its 95 % Wilson interval. `figures` are of `drut.bench.result.figures`.

    `holds` is the verdict on this rate after this run, by all runs at it. `effective` is how many independent requests
    those of this run are worth, by which the interval is as wide as it is. `served_per_s`: requests worked off in a
    second, each counted with the share of its time that lay in the window.
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


class Answer(msgspec.Struct, frozen=True):
    """A figure of the search with what it was bracketed between; `value` None: not found, and `why`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""


class Search(msgspec.Struct, frozen=True):
    """The whole file. `saturation`: requests a second that the server ends with work waiting. `knee`: the rate from
    which latency grows faster than throughput. `slo_rate`: the highest rate at which the limits are held: `value` by
    all runs, `low` the highest that held by its lower bound, `high` the lowest that did not by its upper one."""

    schema: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    target: str
    points: list[Point]
    saturation: Answer
    knee: Answer
    slo_rate: Answer
    notes: list[str] = []
    saturation_tokens_per_s: float | None = None
    ended: str = ""  # why, where it was before its time; "running" until it is over
    turns: float | None = None  # requests of a session; None in files that do not say
