"""Tests whether the measured window shows a server in a steady state."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from drut.bench.stats.distribution import Floats
from drut.bench.stats.slope import Slope, autocorrelation, slope

MIN_SECONDS = 20
MIN_INDEPENDENT = 6.0  # values of the in-flight series
BATCH = 5
SURE = 3.3  # standard errors: the maximum over all cuts exceeds it by chance in at most 5 % of runs
MATTERS = 0.05  # share of the level: a smaller change does not matter, however certain it is


class Steady(msgspec.Struct, frozen=True):
    """The result of the test. `transient_s` is what MSER-5 would cut off from the window's start; `slope` is that of
    the requests in flight."""

    verdict: Literal["steady", "not steady", "too short"]
    reasons: list[str]
    transient_s: float | None = None
    slope: Slope | None = None


def steady(tokens: Floats, in_flight: Floats) -> Steady:
    """Tests a window. `tokens`: output tokens of each second; `in_flight`: mean requests in flight of each second."""
    n = len(tokens)
    if n < MIN_SECONDS:
        seconds = "second" if n == 1 else "seconds"
        return Steady("too short", [f"the window has {n} whole {seconds}, the minimum is {MIN_SECONDS}"])
    cut, change, errors = level_change(tokens)
    trend = slope(in_flight, 1.0)
    reasons = []
    if abs(change) > MATTERS and errors > SURE:
        reasons.append(f"{cut} s after the window's start output went {'up' if change > 0 else 'down'} by "
                       f"{abs(change):.0%}")
    drift, level = trend.per_s * n, max(float(in_flight.mean()), 1.0)
    if (trend.low > 0 or trend.high < 0) and abs(drift) > max(1.0, MATTERS * level):
        reasons.append(f"requests in flight {'grew' if drift > 0 else 'fell'} by {abs(drift):.1f} over the window, "
                       f"at {trend.per_s:.3f} ({trend.low:.3f} .. {trend.high:.3f}) a second")
    transient = float(cut) if reasons else 0.0
    if reasons:
        return Steady("not steady", reasons, transient, trend)
    if trend.independent < MIN_INDEPENDENT:
        return Steady("too short", [f"requests in flight change so slowly that the window shows them "
                                    f"{trend.independent:.1f} times independently, and {MIN_INDEPENDENT:.0f} are "
                                    f"the least"], None, trend)
    return Steady("steady", [], transient, trend)


def mser5(values: Floats) -> int:
    """Returns how many values to cut off from the start: a multiple of 5, at most half of them.

    MSER-5 (White, 1997) chooses the cut that minimizes the standard error of the mean of the rest, computed over batch
    means of 5 as if they were independent.
    """
    batches = values[: len(values) // BATCH * BATCH].reshape(-1, BATCH).mean(1)
    n = len(batches)
    if n < 2:
        return 0
    rest = n - np.arange(n)
    sums, squares = (np.cumsum(x[::-1])[::-1] for x in (batches, batches**2))
    score = (squares - sums**2 / rest) / rest**2
    return BATCH * int(np.argmin(score[: n // 2 + 1]))


def level_change(values: Floats) -> tuple[int, float, float]:
    """Returns the cut that MSER-5 makes from either end; the change of the mean there, as a share of the level after
    it; and that change in standard errors.

    MSER alone always finds some cut. The standard errors show whether it is more than chance; they allow for the
    first-order autocorrelation of the residuals of both means. If too few independent values are left, no change is
    certain, and the errors are 0.
    """
    found = (0, 0.0, 0.0)
    n = len(values)
    for cut in {mser5(values), n - mser5(values[::-1])}:
        before, after = values[:cut], values[cut:]
        if not BATCH <= cut <= n - BATCH:
            continue
        residuals = np.concatenate((before - before.mean(), after - after.mean()))
        rho = autocorrelation(residuals, 2)
        if n * (1 - rho) / (1 + rho) < MIN_INDEPENDENT:
            continue
        variance = float(residuals @ residuals) / (n - 2) * (1 + rho) / (1 - rho)
        step = float(after.mean() - before.mean())
        error = (variance * (1 / len(before) + 1 / len(after))) ** 0.5
        errors = abs(step) / error if error > 0 else np.inf if step else 0.0
        if errors > found[2]:
            found = (cut, step / max(float(after.mean()), 1e-9), float(errors))
    return found
