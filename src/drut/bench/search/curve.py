"""Latency by rate, up to near saturation, and the knee of that curve."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from drut.bench.search.pace import Pace
from drut.bench.search.schema import SearchAnswer
from drut.bench.search.trial import SearchTrial, TrialAsk
from drut.bench.stats.distribution import Floats

SHARES = ((0.3, 1.0), (0.5, 1.0), (0.7, 1.5), (0.85, 2.5), (0.93, 4.0))
"""The rates as shares of the maximum, with relative run times: waits vary more near saturation."""
NEAR = 0.97  # share of saturation: beyond it a run of some minutes shows no steady state
MIN_ERROR = 0.01  # share of a mean latency that the client's own variation may change
SHAPES = np.geomspace(0.25, 40.0, 80)
DRAWS = 200
GREW = 1.1  # factor on the latency without load: a smaller value at the top of the curve is not growth


def rates(pace: Pace, most: float, share_s: float) -> Generator[TrialAsk, SearchTrial, None]:
    """Yields runs at shares of `most` sessions a second."""
    whole = sum(weight for _, weight in SHARES)
    for share, weight in SHARES:
        yield pace.open("curve", share * most, share_s * weight / whole)


def knee(trials: Sequence[SearchTrial], most: float | None, seed: int = 0) -> SearchAnswer:
    """Returns the knee in sessions a second, of at most `most`: the rate at which a relative step of the rate raises
    the mean E2E by the same factor, d ln E2E / d ln rate = 1, which is where rate over latency is largest (Kleinrock's
    power, 1979).

    The curve through the points is alone + a x^m / (1 - x), where x is the share of `most`: the form of Sakasegawa's
    approximation of a queue with several servers (1977), with fitted a and m. The 95 % interval comes from points drawn
    again within their errors.
    """
    if most is None:
        return SearchAnswer(None, why="no saturation was found, so latency has no knee")
    points = [(t.ask.rate / most, *latency) for t in trials if t.ask.rate is not None and t.valid
              and t.ask.rate < NEAR * most and (latency := t.latency) is not None]
    alone = [(1e-3, *latency) for t in trials if t.ask.concurrency == 1 and t.valid
             and (latency := t.latency) is not None]
    if len({x for x, _, _ in points}) < 3:
        return SearchAnswer(None, why="fewer than 3 rates below saturation have a latency")
    x, mean, error = (np.array(column) for column in zip(*points, *alone, strict=True))
    error = np.hypot(np.where(np.isfinite(error), error, mean), MIN_ERROR * mean)
    drawn = mean + error * np.random.default_rng(seed).standard_normal((DRAWS, len(mean)))
    found, *others = _knees(_fits(x, np.vstack((mean, drawn)), error)).tolist()
    if found >= 1 or mean[x > 0.8 * x.max()].max() < GREW * mean[x.argmin()]:
        return SearchAnswer(None, why=f"latency hardly grew up to {x.max() * most:.4g}/s")
    low, high = (float(np.quantile(others, q)) * most for q in (0.025, 0.975))
    return SearchAnswer(found * most, min(low, found * most), max(high, found * most))


def _fits(x: Floats, curves: Floats, error: Floats) -> Floats:
    """Returns a row (alone, a, m) for each row of `curves` over the same `x`: least squares for each of many m, and the
    best of them. Neither alone nor a is below 0."""
    weight = 1 / error**2
    best = np.full(len(curves), np.inf)
    found = np.zeros((len(curves), 3))
    for m in SHAPES:
        wait = x**m / (1 - x)
        s, sx, sxx = weight.sum(), weight @ wait, weight @ wait**2
        sy, sxy = curves @ weight, curves @ (weight * wait)
        a = np.maximum((s * sxy - sx * sy) / max(s * sxx - sx * sx, 1e-30), 0.0)
        alone = np.maximum((sy - a * sx) / s, 0.0)
        missed = ((curves - alone[:, None] - a[:, None] * wait) ** 2) @ weight
        better = missed < best
        best[better] = missed[better]
        found[better] = np.column_stack((alone, a, np.full(len(a), m)))[better]
    return found


def _knees(fits: Floats) -> Floats:
    """Returns for each fit the x at which x R'(x) = R(x), by bisection: x R' - R begins at or below 0 and, if a is
    above 0, is unbounded. 1 if there is no such x."""
    alone, a, m = fits.T
    low, high = np.full(len(fits), 1e-6), np.ones(len(fits))
    for _ in range(40):
        x = (low + high) / 2
        over = a * x**m * ((m - 1) * (1 - x) + x) / (1 - x) ** 2 > alone
        low, high = np.where(over, low, x), np.where(over, x, high)
    return np.where(high > 1 - 1e-6, 1.0, low)
