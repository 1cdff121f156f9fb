"""The schema of a sweep's `summary.json`. SCHEMA changes when a field is removed or changes its meaning."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from drut.bench.metrics.request import Slo
from drut.bench.result.figures import FIGURES
from drut.bench.result.schema import Result

SCHEMA = "drut.sweep/1"


class SweepPoint(msgspec.Struct, frozen=True):
    """One run. `rate` (sessions per second) or `users` is the load; a rate of "inf" sends all requests at once.
    `folder`, relative to the summary, has the run's result.json. `figures` are those of `drut.bench.result.figures`."""

    rate: float | Literal["inf"] | None
    users: int | None
    folder: str
    valid: bool
    reasons: list[str]
    steady: str
    requests: int
    failed: int
    figures: dict[str, float | Literal["inf"] | None]

    @classmethod
    def of(cls, result: Result, folder: str) -> SweepPoint:
        """Returns the point of a run."""
        failures = result.summary.errors
        return cls(result.settings.get("rate"), result.settings.get("concurrency"), folder, result.validity.valid,
                   result.validity.reasons, result.steady.verdict, failures.offered, failures.failed,
                   {name: kind.of(result) for name, kind in FIGURES.items()})

    @property
    def load(self) -> str:
        """Returns the load in words."""
        if self.users is not None:
            return f"{self.users} user{'s' if self.users > 1 else ''}"
        if self.rate is None:
            return "as traced"
        return "all at once" if self.rate == "inf" else f"{self.rate:g}/s"


class Sweep(msgspec.Struct, frozen=True):
    """The whole file. `settings` are those of all runs; `ended` is the reason of an early end, or empty."""

    schema: str
    by: Literal["rate", "users"]
    settings: dict[str, Any]
    environment: dict[str, Any]
    points: list[SweepPoint]
    slo: Slo | None = None
    ended: str = ""
