"""The lengths of a search's runs: long enough for their purpose, and within the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from drut.bench.metrics.request import Slo
from drut.bench.search.schema import Phase
from drut.bench.search.trial import SearchTrial, TrialAsk

MIN_WARMUP_S, WARMUP_E2E, WARMUP_SHARE = 0.5, 5.0, 0.15
MIN_WINDOW_S = 1.0
GRACE_E2E, MIN_GRACE_S = 10.0, 2.0
ENOUGH = 1500  # requests of a closed loop
START_S = 1.0  # what a run takes in addition to its own time, until one was measured


class SpentError(Exception):
    """Raised within a search if the budget has no time for a further run."""


@dataclass
class Pace:
    """Plans run lengths. `clock` in seconds; `until` is the end of the budget on that clock. `alone_s`: the mean E2E of
    requests without load."""

    clock: Callable[[], float]
    until: float
    slo: Slo | None = None
    alone_s: float = 0.1
    slow_s: float = 0.1  # the longest of them
    start_s: float = START_S

    def left(self) -> float:
        """Returns the seconds left of the budget."""
        return self.until - self.clock()

    def pilot(self) -> TrialAsk:
        """Returns the first run, which measures how long requests take."""
        grace = max(self.left() - MIN_WINDOW_S - self.start_s, MIN_GRACE_S)
        return TrialAsk("curve", 0.0, MIN_WINDOW_S, grace, concurrency=1)

    def holds_pilot(self) -> bool:
        """Returns whether the budget has time for another pilot."""
        return self.left() >= MIN_WINDOW_S + self.start_s + 2 * self.slow_s

    def saw_pilot(self, trial: SearchTrial) -> None:
        """Sets the time scale."""
        if trial.latency is not None:
            self.alone_s, self.slow_s = trial.latency[0], float(trial.e2e.max())

    def closed(self, phase: Phase, users: int, total_s: float, served_per_s: float) -> TrialAsk:
        """Returns a run with `users` users, `total_s` in all; `served_per_s` is the maximum of requests served a second
        so far."""
        wait = max(self.slow_s, users / served_per_s if served_per_s else 0.0)
        warmup = max(MIN_WARMUP_S, WARMUP_E2E * wait)
        window = min(total_s - warmup - self.start_s - wait, ENOUGH / max(served_per_s, users / self.alone_s))
        return self._fit(TrialAsk(phase, warmup, max(window, 5 * wait, MIN_WINDOW_S), self._grace(), concurrency=users))

    def open(self, phase: Phase, rate: float, total_s: float, least: int = 1) -> TrialAsk:
        """Returns a run at a rate, `total_s` in all but with at least `least` requests in the window."""
        rate, total_s = float(f"{rate:.5g}"), min(total_s, self.left())
        warmup = max(MIN_WARMUP_S, WARMUP_E2E * self.slow_s, WARMUP_SHARE * total_s)
        window = total_s - warmup - self.start_s - self.slow_s
        return self._fit(TrialAsk(phase, warmup, max(window, least / rate, MIN_WINDOW_S), self._grace(), rate=rate))

    def _grace(self) -> float:
        """Returns the grace period; a request that takes longer has missed the limits anyway."""
        limits = [limit for limit in (self.slo.ttft, self.slo.e2e) if limit is not None] if self.slo else []
        return max(MIN_GRACE_S, GRACE_E2E * self.slow_s, 2 * max(limits, default=0.0))

    def _fit(self, ask: TrialAsk) -> TrialAsk:
        """Shortens the window to fit the budget. After the window, two request times are planned for waiting, and the
        rest of the grace period is cut if it would exceed the budget."""
        left = self.left() - self.start_s - min(self.slow_s, START_S / 2)  # the amount by which start_s may be too low
        tail = min(2 * self.slow_s, ask.grace_s)
        window = min(ask.window_s, left - ask.warmup_s - tail)
        if window < MIN_WINDOW_S or window < min(ask.window_s, 3 * self.slow_s):
            raise SpentError
        grace = min(ask.grace_s, max(left - ask.warmup_s - window, tail))
        return TrialAsk(phase=ask.phase, warmup_s=ask.warmup_s, window_s=window, grace_s=grace, rate=ask.rate,
                        concurrency=ask.concurrency)
