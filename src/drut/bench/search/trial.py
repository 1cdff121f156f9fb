"""One run of a search: what is asked, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from drut.bench.search.schema import Phase
from drut.bench.stats.distribution import Figure, Floats
from drut.bench.stats.proportion import hits_effect, mean_error

BLOCKS = 10


@dataclass(frozen=True)
class Ask:
    """A load and for how long, in seconds. One of `rate` and `concurrency` is given. `grace_s`: most seconds that
    requests are waited for after the window."""

    phase: Phase
    warmup_s: float
    window_s: float
    grace_s: float
    rate: float | None = None
    concurrency: int | None = None

    @property
    def most_s(self) -> float:
        """Seconds that it may take, but for starting the client."""
        return self.warmup_s + self.window_s + self.grace_s

    def __str__(self) -> str:
        return f"{self.rate:.4g} sessions/s" if self.rate is not None else f"{self.concurrency} at a time"


@dataclass(frozen=True)
class Trial:
    """What came of it. `e2e` and `good` are of the measured requests in the order they were due; a failed one has an
    infinite E2E, in seconds. `served` are requests worked off a second in each tenth of the window. A trial that is not
    `valid` tells of the client; one that is and has `reasons` tells of a server that failed. `turns`: requests of a
    session. `others_cpus`: what neither client nor server had of this machine; None: not known."""

    ask: Ask
    e2e: Floats
    good: Floats | None
    served: Floats
    valid: bool = True
    reasons: list[str] = field(default_factory=list)
    steady: str = ""
    unsettled: str = ""  # why it is not steady
    figures: dict[str, Figure] = field(default_factory=dict)
    turns: float = 1.0
    others_cpus: float | None = None

    @property
    def served_per_s(self) -> float:
        """Requests worked off a second."""
        return float(self.served.mean())

    @property
    def failed(self) -> float:
        """The share of requests that failed; 1 where none was offered."""
        return float(np.isinf(self.e2e).mean()) if len(self.e2e) else 1.0

    @cached_property
    def latency(self) -> tuple[float, float] | None:
        """The mean E2E in seconds and its standard error; None where a request failed or there was none."""
        if not len(self.e2e) or not np.isfinite(self.e2e).all():
            return None
        return mean_error(self.e2e)

    @cached_property
    def effective(self) -> float:
        """How many independent requests those of this run are worth, as to whether they held the limits."""
        assert self.good is not None
        return len(self.good) / hits_effect(self.good, self.e2e) if len(self.good) else 0.0


Measure = Callable[[Ask], Trial]
"""Raises DrutError where the server cannot be reached, KeyboardInterrupt where a user ends it."""


def worked_off(begun: Floats, ended: Floats, window: tuple[float, float]) -> Floats:
    """Requests a second in each tenth of the window, of those that ended well, in the window or not.

    A request counts with the share of its time, from `begun` to `ended`, that lay in the tenth. That has the mean of a
    count of ends, without the noise of the window's edges: so many users who always wait for a constant time give
    exactly their number over that time (Little's law).
    """
    edges = np.linspace(*window, BLOCKS + 1)
    long = np.maximum(ended - begun, 1e-9)[:, None]
    within = np.minimum(ended[:, None], edges[1:]) - np.maximum(begun[:, None], edges[:-1])
    return np.asarray((np.maximum(within, 0.0) / long).sum(0) / np.diff(edges))
