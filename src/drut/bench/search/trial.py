"""One run of a search: its parameters and its result."""

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
class TrialAsk:
    """A load and its phases, in seconds. One of `rate` and `concurrency` is set. `grace_s`: maximum wait for requests
    after the window."""

    phase: Phase
    warmup_s: float
    window_s: float
    grace_s: float
    rate: float | None = None
    concurrency: int | None = None

    @property
    def most_s(self) -> float:
        """Returns the maximum seconds it may take, without starting the client."""
        return self.warmup_s + self.window_s + self.grace_s

    def __str__(self) -> str:
        return f"{self.rate:.4g} sessions/s" if self.rate is not None else f"{self.concurrency} at a time"


@dataclass(frozen=True)
class SearchTrial:
    """The result of a run. `e2e` and `good` are those of the measured requests in the order of their due times; a
    failed one has an infinite E2E, in seconds. `served`: requests completed a second in each tenth of the window. A
    trial that is not `valid` is affected by the client; one that is valid and has `reasons` shows that the server
    failed. `turns`: requests of a session. `others_cpus`: CPUs of this machine used by neither client nor server; None:
    unknown."""

    ask: TrialAsk
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
        """Returns the requests completed a second."""
        return float(self.served.mean())

    @property
    def failed(self) -> float:
        """Returns the share of requests that failed; 1 if none was offered."""
        return float(np.isinf(self.e2e).mean()) if len(self.e2e) else 1.0

    @cached_property
    def latency(self) -> tuple[float, float] | None:
        """Returns the mean E2E in seconds and its standard error; None if a request failed or there was none."""
        if not len(self.e2e) or not np.isfinite(self.e2e).all():
            return None
        return mean_error(self.e2e)

    @cached_property
    def effective(self) -> float:
        """Returns the effective number of independent requests of this run, for the share that met the limits."""
        assert self.good is not None
        return len(self.good) / hits_effect(self.good, self.e2e) if len(self.good) else 0.0


Measure = Callable[[TrialAsk], SearchTrial]
"""Measures a run. Raises DrutError if the server cannot be reached, KeyboardInterrupt if a user ends it."""


def worked_off(begun: Floats, ended: Floats, window: tuple[float, float]) -> Floats:
    """Returns the requests a second in each tenth of the window, of all successful requests.

    A request counts with the share of its time, from `begun` to `ended`, within the tenth. The mean equals that of a
    count of ends, without the noise of the window's edges: for a fixed number of users with a constant time it is
    exactly their number over that time (Little's law).
    """
    edges = np.linspace(*window, BLOCKS + 1)
    long = np.maximum(ended - begun, 1e-9)[:, None]
    within = np.minimum(ended[:, None], edges[1:]) - np.maximum(begun[:, None], edges[:-1])
    return np.asarray((np.maximum(within, 0.0) / long).sum(0) / np.diff(edges))
