"""`search.json`, as data. SCHEMA changes when a field changes its meaning or goes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "drut.search/1"


class Point(msgspec.Struct, frozen=True):
    """One run of the search. One of `rate` (sessions a second) and `concurrency` is given. `good_share`: requests that
    held the limits, of those offered, with its 95 % Wilson interval. `figures` are of `drut.bench.compare.figures`."""

    phase: Literal["curve", "bracket", "bisect", "saturate", "verify"]
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


class Answer(msgspec.Struct, frozen=True):
    """A figure of the search with what it was bracketed between; `value` None: not found, and `why`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    why: str = ""


class Search(msgspec.Struct, frozen=True):
    """The whole file. `saturation`: requests a second that the server ends with work waiting. `knee`: the rate from
    which latency grows faster than throughput. `slo_rate`: the highest rate at which the limits are held."""

    schema: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    target: str
    points: list[Point]
    saturation: Answer
    knee: Answer
    slo_rate: Answer
    notes: list[str] = []
