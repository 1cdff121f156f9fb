"""Measures a running server: each run of a search is one of `drut.bench.run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from drut.bench.load.fleet import ClosedLoop, LoadPlan, LoadProgress, OpenLoop
from drut.bench.load.halt import INTERRUPTED
from drut.bench.load.schedule import ArrivalRate, Arrivals, Schedule
from drut.bench.load.wire import MeasureWindow
from drut.bench.result.figures import FIGURES
from drut.bench.result.schema import ReportRequest, Result
from drut.bench.result.validity import NONE_FINISHED
from drut.bench.run import BenchRun, measure
from drut.bench.search.trial import SearchTrial, TrialAsk, worked_off

SEED_STEP = 7919  # distance of seeds, so that no run repeats prompts that a prefix cache would hold


@dataclass
class Live:
    """A `Measure`. `run` is a template whose plan is replaced; `workers` returns the number of client processes of a
    loop. `progress` receives the progress of each run."""

    run: BenchRun
    workers: Callable[[OpenLoop | ClosedLoop], int]
    arrivals: Arrivals = "poisson"
    cv: float = 1.0
    progress: Callable[[TrialAsk, LoadProgress], None] | None = None
    runs: int = 0

    def __call__(self, ask: TrialAsk) -> SearchTrial:
        """Raises DrutError if the server cannot be reached, KeyboardInterrupt if a user ended the run."""
        seed = self.run.seed + SEED_STEP * self.runs
        self.runs += 1
        window = MeasureWindow(ask.warmup_s, ask.warmup_s + ask.window_s, ask.grace_s)
        loop: OpenLoop | ClosedLoop
        if ask.concurrency is not None:
            loop = ClosedLoop(ask.concurrency)
        else:
            loop = OpenLoop(Schedule(ArrivalRate.steady(ask.rate or 0.0), self.arrivals, self.cv, seed))
        plan = LoadPlan(self.run.plan.target, window, loop, self.workers(loop))
        # Failures are the server's, and a search measures them: they do not make a run void here.
        run = replace(self.run, plan=plan, seed=seed, most_errors=1.0, arrivals=False, primed=True)
        on_progress = self.progress
        result, halted = measure(run, None if on_progress is None else lambda progress: on_progress(ask, progress))
        if halted == INTERRUPTED:
            raise KeyboardInterrupt
        return trial(ask, result, halted)


def trial(ask: TrialAsk, result: Result, halted: str | None) -> SearchTrial:
    """Returns the parts of a result that a search keeps. If a run ended because all requests failed, that is a result
    about the server."""
    counted = [r for r in result.requests if r.measured]
    failed = result.summary.errors.failed == len(counted)
    of_client = [reason for reason in result.validity.reasons
                 if not failed or (reason != halted and not reason.startswith(NONE_FINISHED))]
    well = [r for r in result.requests if r.failure is None and r.ended_ms is not None]
    begun = np.array([r.scheduled_ms + (r.sent_ms or 0.0) for r in well]) / 1e3
    ended = np.array([r.scheduled_ms + (r.ended_ms or 0.0) for r in well]) / 1e3
    first = sum(r.turn == 0 for r in counted)
    known = all(r.good is not None for r in counted)
    return SearchTrial(
        ask, np.array([_e2e(r) for r in counted]), np.array([float(bool(r.good)) for r in counted]) if known else None,
        worked_off(begun, ended, (ask.warmup_s, ask.warmup_s + ask.window_s)),
        valid=bool(counted) and not of_client,
        reasons=result.validity.reasons, turns=len(counted) / first if first else 1.0, steady=result.steady.verdict,
        unsettled="; ".join(result.steady.reasons) if result.steady.verdict == "not steady" else "",
        figures={name: kind.of(result) for name, kind in FIGURES.items()},
        others_cpus=None if result.watched is None else result.watched.resources.others_cpus)


def _e2e(request: ReportRequest) -> float:
    return float("inf") if request.e2e_ms is None else request.e2e_ms / 1e3
