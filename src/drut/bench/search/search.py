"""Runs a search from its first run to its last; however it ends, the results so far are reported."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drut.bench.metrics.request import Slo
from drut.bench.search import curve, limit, saturation
from drut.bench.search.pace import Pace, SpentError
from drut.bench.search.schema import SCHEMA, Point, Search, SearchAnswer
from drut.bench.search.trial import Measure, SearchTrial, TrialAsk
from drut.bench.stats.proportion import wilson
from drut.bench.stats.quantiles import normal
from drut.errors import DrutError, RequestError

MIN_BUDGET_S = 20.0
CLIMB_SHARE, CURVE_SHARE = 0.25, 0.2  # shares of the budget; the rest is for the limits
CURVE_ALONE_SHARE = 0.65  # if there are no limits
SUSPECT = 0.02  # share of failures after which the search checks whether the server still answers
RETRIES = 1  # of a run that is void through the client's fault
BUSY_CPUS = 0.25  # maximum that others may use in the median run without a note


@dataclass(frozen=True)
class Wanted:
    """The goals of a search. `users`: the steps of the concurrency curve, doubled beyond them while throughput still
    grows. Raises RequestError."""

    budget_s: float
    slo: Slo | None = None
    attain: float = 0.95
    tolerance: float = 0.05
    users: tuple[int, ...] = (1, 2, 4, 8)

    def __post_init__(self) -> None:
        if not MIN_BUDGET_S <= self.budget_s <= 1e6:
            raise RequestError(f"--budget must be at least {MIN_BUDGET_S:g} s, not {self.budget_s:g} s")
        if not 0.5 <= self.attain <= 0.999:
            raise RequestError(f"--attain must be from 0.5 to 0.999, not {self.attain}")
        if not 0.01 <= self.tolerance <= 0.5:
            raise RequestError(f"--tolerance must be from 0.01 to 0.5, not {self.tolerance}")
        if not self.users or any(n < 1 for n in self.users) or list(self.users) != sorted(set(self.users)):
            raise RequestError("--users must be ascending numbers from 1, such as 1,2,4,8")


@dataclass(frozen=True)
class About:
    """The file's description of the search."""

    target: str
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)


class LostError(Exception):
    """Raised within a search if the server is lost."""


class Searcher:
    """Runs a search. `save` gets the whole file after each run, `report` a line about each run before it begins."""

    def __init__(self, measure: Measure, wanted: Wanted, about: About, clock: Callable[[], float],
                 save: Callable[[Search], None], report: Callable[[str], None]) -> None:
        self._measure, self._wanted, self._about, self._save, self._report = measure, wanted, about, save, report
        self._pace = Pace(clock, clock() + wanted.budget_s, wanted.slo)
        self._trials: list[SearchTrial] = []
        self._points: list[Point] = []

    def run(self) -> Search:
        """Runs until all results are found or the budget is spent. Raises DrutError if nothing could be measured at
        all; after that, KeyboardInterrupt ends the search in order."""
        wanted = self._wanted
        self._report(f"at most {wanted.budget_s / 60:.3g} min: saturation and the concurrency curve, then the rate "
                     "curve" + (", then the highest rate that holds the limits" if wanted.slo else ""))
        ended = ""
        try:
            self._pilot()
            self._all()
        except LostError as error:
            ended = f"the server was lost: {error}"
        except KeyboardInterrupt:
            if not self._trials:
                raise
            ended = "interrupted"
        if not self._trials:
            raise DrutError(ended or "the budget holds not one run")
        result = self._result(ended)
        self._save(result)
        return result

    def _all(self) -> None:
        wanted, pace, trials = self._wanted, self._pace, self._trials
        self._drive(saturation.climb(trials, pace, wanted.users, CLIMB_SHARE * pace.left()))
        served = self._most() or saturation.served_most(trials) / self._turns()
        if served:
            share = (CURVE_SHARE if wanted.slo else CURVE_ALONE_SHARE) * wanted.budget_s
            self._drive(curve.rates(pace, served, min(share, pace.left())))
        if wanted.slo is not None:
            begin = served / 2 or 1 / pace.alone_s / 2
            self._drive(limit.hunt(trials, pace, wanted.attain, wanted.tolerance, self._most(), begin))

    def _pilot(self) -> None:
        """Sets the time scale. It is not a point of the search, because the first requests may find a cold server."""
        self._report("a pilot, one at a time")
        trial = self._measure(self._pace.pilot())
        if trial.latency is None:
            raise DrutError(f"the pilot failed: {'; '.join(trial.reasons) or 'a request did not finish'}")
        self._pace.saw_pilot(trial)

    def _drive(self, asks: Generator[TrialAsk, SearchTrial, None]) -> None:
        """Runs the requests of a part of the search until it is complete or the budget is spent."""
        try:
            ask = next(asks)
            while True:
                ask = asks.send(self._try(ask))
        except (StopIteration, SpentError):
            return

    def _try(self, ask: TrialAsk) -> SearchTrial:
        """Measures a run, and repeats it once if the client was at fault. Saves after each."""
        for again in range(RETRIES + 1):
            if again and ask.most_s > self._pace.left():
                break
            self._report(f"{ask.phase}: {ask}, {ask.window_s:.0f} s{' once more' if again else ''} "
                       f"({max(self._pace.left(), 0):.0f} s left)")
            trial = self._once(ask)
            self._trials.append(trial)
            self._points.append(_point(self._trials, self._wanted.attain))
            self._save(self._result("running"))
            if trial.valid:
                break
        return self._trials[-1]

    def _once(self, ask: TrialAsk) -> SearchTrial:
        before = self._pace.clock()
        try:
            trial = self._measure(ask)
        except DrutError as error:
            if not self._trials:
                raise
            raise LostError(str(error)) from error
        extra_s = self._pace.clock() - before - ask.warmup_s - ask.window_s - self._pace.slow_s
        self._pace.start_s = min(max(0.8 * self._pace.start_s + 0.2 * extra_s, 0.1), 5.0)
        if trial.valid and (trial.failed == 1 or (trial.failed > SUSPECT and self._pace.holds_pilot())):
            self._still_there(ask)
        return trial

    def _still_there(self, ask: TrialAsk) -> None:
        """Raises LostError if the server no longer answers: then it has not failed to hold a rate."""
        why = f"requests failed at {ask}"
        try:
            probe = self._measure(self._pace.pilot())
        except DrutError as error:
            raise LostError(f"{why}, and then: {error}") from error
        if not np.isfinite(probe.e2e).any():
            raise LostError(f"{why}, and then one at a time too")

    def _turns(self) -> float:
        """Returns the requests of a session."""
        return float(np.mean([t.turns for t in self._trials if t.valid] or [1.0]))

    def _most(self) -> float | None:
        """Returns the maximum of sessions a second that the server completes."""
        most = saturation.ceiling(self._trials)
        return None if most is None else most / self._turns()

    def _result(self, ended: str) -> Search:
        wanted, trials = self._wanted, self._trials
        most = self._most()
        slo = SearchAnswer(None, why="no limits were given (--slo)")
        if wanted.slo is not None:
            slo = limit.slo_rate(trials, wanted.attain, most, wanted.tolerance)
        return Search(schema=SCHEMA, settings=self._about.settings, environment=self._about.environment,
                      target=self._about.target, points=list(self._points), saturation=saturation.saturation(trials),
                      knee=curve.knee(trials, most), slo_rate=slo, notes=self._notes(most),
                      saturation_tokens_per_s=saturation.tokens_at_saturation(trials), ended=ended, turns=self._turns())

    def _notes(self, most: float | None) -> list[str]:
        trials = self._trials
        notes = [f"at {t.ask} the server did not settle: {t.unsettled}" for t in trials
                 if t.valid and t.steady == "not steady" and (
                     t.ask.rate is None or most is None or t.ask.rate < most)]
        void = sum(not t.valid for t in trials)
        if void:
            notes.append(f"{void} of {len(trials)} runs are void through the client's fault and do not count")
        others = [t.others_cpus for t in trials if t.others_cpus is not None]
        if others and (median := float(np.median(others))) > BUSY_CPUS:
            notes.append(f"other processes took {median:.1f} CPUs of this machine, which may have affected the results")
        if (turns := self._turns()) > 1.01:
            notes.append(f"a session has {turns:.1f} requests: the knee and the rate that holds the limits are "
                         "sessions a second, the saturation is requests a second")
        if self._wanted.slo is not None:
            known = limit.levels(trials)
            failed = [level.rate for level in known if level.verdict(self._wanted.attain) is False]
            held = [level.rate for level in known if level.verdict(self._wanted.attain)]
            if failed and held and min(failed) < max(held):
                notes.append(f"{max(held):.4g}/s held the limits and {min(failed):.4g}/s, which is less, did not: of "
                             "these the lower is reported")
        return notes


def _point(until: Sequence[SearchTrial], attain: float) -> Point:
    trial = until[-1]
    good = share = low = high = worth = holds = None
    if trial.good is not None and len(trial.good):
        good, share, worth = int(trial.good.sum()), float(trial.good.mean()), trial.effective
        low, high = wilson(share, worth, normal(0.975))
        if trial.ask.rate is not None and trial.valid:
            holds = next(level.verdict(attain) for level in limit.levels(until) if level.rate == trial.ask.rate)
    latency = trial.latency
    return Point(phase=trial.ask.phase, rate=trial.ask.rate, concurrency=trial.ask.concurrency, offered=len(trial.e2e),
                 good=good, good_share=share, good_low=low, good_high=high, holds=holds,
                 valid=trial.valid and not trial.reasons, reasons=trial.reasons, figures=trial.figures, effective=worth,
                 served_per_s=trial.served_per_s, e2e_ms_mean=None if latency is None else latency[0] * 1e3,
                 steady=trial.steady, warmup_s=trial.ask.warmup_s, window_s=trial.ask.window_s)
