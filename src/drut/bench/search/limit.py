"""Finds the highest rate that holds the limits.

A rate is evaluated at most three times, each time with all its runs so far, and each time at a confidence that keeps
the probability of any wrong verdict on it below 5 % (Bonferroni). So a run that clearly holds or fails is short, and
others are extended. The intervals are Wilson's, for the effective number of independent requests, which allows for the
correlation of successive requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from drut.bench.search.pace import Pace
from drut.bench.search.schema import SearchAnswer
from drut.bench.search.trial import SearchTrial, TrialAsk
from drut.bench.stats.proportion import wilson
from drut.bench.stats.quantiles import normal
from drut.bench.stats.samples import least_samples

LOOKS = 3
LENGTHS = (1.0, 2.0, 6.0)  # relative lengths of the evaluations
Z = normal(1 - 0.05 / 2 / LOOKS)
STEP, MAX_STEPS = 2.0, 8
QUICK_SHARE = 1 / 20  # share of the total time: the length of a bracketing run
RECENTRES = 4
FURTHEST = 0.5
# the rate below the crossing is run this many times longer than the one above: without it there is no result
LOWER = 2.0
OVERRATED = 2.0  # factor by which the effective number of a short run is too high
NEARBY = 1.5  # factor on the crossing: rates further away do not show the curve's slope there


Curve = Callable[[float], float]


@dataclass(frozen=True)
class LoadLevel:
    """A rate with all its valid runs. `worth`: their effective number of independent requests."""

    rate: float
    share: float
    worth: float
    looks: int
    settled: bool
    window_s: float

    def bounds(self, z: float = Z) -> tuple[float, float]:
        """Returns the bounds of the share that holds the limits."""
        return wilson(self.share, max(self.worth, 1e-9), z)

    def verdict(self, attain: float) -> bool | None:
        """Returns whether the rate holds; None: unknown yet, or a server that did not settle, whose share would
        continue to fall."""
        low, high = self.bounds()
        if high < attain:
            return False
        return True if low >= attain and self.settled else None


def levels(trials: Sequence[SearchTrial]) -> list[LoadLevel]:
    """Returns the levels by rate, ascending."""
    at: dict[float, list[SearchTrial]] = {}
    for trial in trials:
        if trial.ask.rate is not None and trial.valid and trial.good is not None and len(trial.good):
            at.setdefault(trial.ask.rate, []).append(trial)
    result = []
    for rate, runs in sorted(at.items()):
        good = np.concatenate([t.good for t in runs if t.good is not None])
        result.append(LoadLevel(rate=rate, share=float(good.mean()), worth=sum(t.effective for t in runs),
                                looks=len(runs),
                                settled=runs[-1].steady != "not steady", window_s=sum(t.ask.window_s for t in runs)))
    return result


def least_requests(attain: float) -> int:
    """Returns the minimum of requests, none of them a miss, that can show that a rate holds."""
    return max(math.ceil(Z * Z * attain / (1 - attain)) + 1, least_samples(round(100 * attain)))


def hunt(trials: Sequence[SearchTrial], pace: Pace, attain: float, tolerance: float, most: float | None,
         begin: float) -> Generator[TrialAsk, SearchTrial, None]:
    """Brackets the rate by doubling and halving, bisects, and then uses most of the time for a rate just below and one
    just above. `most`: maximum of sessions served a second; None: unknown. `begin`: the first rate."""
    quick, least = QUICK_SHARE * pace.left(), least_requests(attain)
    if not levels(trials):
        yield pace.open("bracket", begin, quick, least)
    for _ in range(MAX_STEPS):
        below, above = _bracket(trials, attain)
        if below is None and above is not None:
            yield pace.open("bracket", above / STEP, quick, least)
        elif above is None and below is not None and not _capped(below, most, tolerance):
            rate = STEP * below if most is None else min(STEP * below, math.sqrt(below * most))
            yield pace.open("bracket", rate, quick, least)
        else:
            break
    for _ in range(MAX_STEPS):
        below, above = _bracket(trials, attain)
        if below is None or above is None or above / below <= (1 + tolerance) ** 2:
            break
        yield pace.open("bisect", math.sqrt(below * above), quick, least)
    yield from _again(trials, pace, attain, quick, least)
    yield from _verify(trials, pace, attain, tolerance, most)


def slo_rate(trials: Sequence[SearchTrial], attain: float, most: float | None, tolerance: float) -> SearchAnswer:
    """Returns the result: `value` is the rate at which the curve through all runs crosses `attain`; `low` is the
    highest rate whose lower bound is at or above `attain`, and `high` the lowest rate whose upper bound is below it or
    that exceeds saturation. Without a rate that holds there is no value: a curve alone guarantees nothing."""
    known = levels(trials)
    if not known:
        return SearchAnswer(None, why="no valid run at a rate: a longer --budget may hold one")
    failed = [level.rate for level in known if level.verdict(attain) is False]
    ends = [end for end in (min(failed, default=None), most) if end is not None]
    high = min(ends, default=None)
    low = max((level.rate for level in known if level.verdict(attain) and (high is None or level.rate < high)),
              default=None)
    below, above = _bracket(trials, attain)
    if below is None:
        first = known[0]
        return SearchAnswer(None, high=high, why=f"the lowest rate with a valid run is {first.rate:.4g}/s, where "
                                           f"{first.share:.1%} of requests held the limits")
    if low is None:
        return SearchAnswer(None, high=high,
                            why="no rate was run long enough to show that it holds: a longer --budget helps")
    if above is None:
        if most is None:
            return SearchAnswer(None, low=low, why=f"held at every rate that was run, up to {below:.4g}/s")
        value = math.sqrt(below * most) if below < most else below
    else:
        value = crossing(known, attain, below, above)[0]
    return SearchAnswer(min(max(value, low), high or math.inf), low, high, _unsure(low, high, tolerance))


def crossing(known: Sequence[LoadLevel], attain: float, below: float, above: float) -> tuple[float, Curve]:
    """Returns the rate at which the share is `attain`, and the logit of the share as a linear function of the logarithm
    of the rate, fitted to nearby rates by maximum likelihood with half a request added to both sides."""
    middle = math.sqrt(below * above)
    near = [level for level in known if below <= level.rate <= above or 1 / NEARBY < level.rate / middle < NEARBY]
    x = np.log([level.rate / middle for level in near])
    n = np.array([level.worth for level in near]) + 1
    hits = np.array([level.share * level.worth for level in near]) + 0.5
    design = np.column_stack((np.ones_like(x), x))
    beta = np.array([math.log(attain / (1 - attain)), -1.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        weight = n * p * (1 - p) + 1e-9
        step = np.linalg.lstsq(design.T @ (design * weight[:, None]), design.T @ (hits - n * p), rcond=None)[0]
        beta += np.clip(step, -3, 3)
        if np.abs(step).max() < 1e-9:
            break
    a, b = float(beta[0]), float(beta[1])
    if b >= -1e-3:  # noise only: there is no slope
        a, b = math.log(attain / (1 - attain)), -1.0
    at = (math.log(attain / (1 - attain)) - a) / b
    rate = middle * math.exp(min(max(at, math.log(below / middle)), math.log(above / middle)))
    return rate, lambda rate: a + b * math.log(rate / middle)


def monotone(known: Sequence[LoadLevel]) -> list[float]:
    """Makes the shares fall with the rate: neighbours that do not are pooled (isotonic regression)."""
    pools: list[list[float]] = []  # share, effective number, levels
    for level in known:
        pools.append([level.share, max(level.worth, 1e-9), 1])
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (s, w, k), (t, v, j) = pools[-2:]
            pools[-2:] = [[(s * w + t * v) / (w + v), w + v, k + j]]
    return [share for share, _, count in pools for _ in range(int(count))]


def _bracket(trials: Sequence[SearchTrial], attain: float) -> tuple[float | None, float | None]:
    """Returns the highest rate that seems to hold, and the lowest that seems not to."""
    known = levels(trials)
    shares = monotone(known)
    below = max((level.rate for level, share in zip(known, shares, strict=True) if share >= attain), default=None)
    above = min((level.rate for level, share in zip(known, shares, strict=True) if share < attain), default=None)
    return below, above


def _again(trials: Sequence[SearchTrial], pace: Pace, attain: float, quick: float, least: int,
           ) -> Generator[TrialAsk, SearchTrial, None]:
    """Runs a rate again if it failed below one that held."""
    known = levels(trials)
    held = max((level.rate for level in known if level.verdict(attain)), default=0.0)
    for level in known:
        if level.rate < held and level.verdict(attain) is False and level.looks < LOOKS:
            yield pace.open("verify", level.rate, 2 * quick, least)


def _verify(trials: Sequence[SearchTrial], pace: Pace, attain: float, tolerance: float, most: float | None,
            ) -> Generator[TrialAsk, SearchTrial, None]:
    """Runs a rate below the crossing and one above, alternately. Both are moved if the crossing turns out to be
    elsewhere, and the lower one if the time left cannot show that it holds."""
    sides: tuple[float, float] | None = None
    center, moves = 0.0, 0
    while True:
        below, above = _bracket(trials, attain)
        if below is None or (above is None and most is None):
            return
        known = levels(trials)
        at = {level.rate: level for level in known}
        highest, now, logit = math.inf, below, None  # if nothing failed yet, the highest rate is run again
        if above is not None:
            now, logit = crossing(known, attain, below, above)
        if sides is not None and not _showable(at.get(sides[0]), pace, attain):
            highest = sides[0] / (1 + tolerance)
        if sides is None or (moves < RECENTRES and (highest < now or abs(now / center - 1) > tolerance / 2)):
            low = _holdable(known, pace, attain, tolerance, min(highest, now / (1 + tolerance)), logit)
            sides = _tidy(low), below if above is None else min(_tidy(now * (1 + tolerance)), most or math.inf)
            center, moves = now, moves + 1
        open_sides = []
        for rate, wanted in zip(sides, (True, False), strict=True):
            level = at.get(rate)
            looks = level.looks if level else 0
            sure = level is not None and level.verdict(attain) is not None
            past = not wanted and most is not None and rate >= most
            if looks < LOOKS and not sure and not past:
                open_sides.append((looks, rate, LOWER if wanted else 1.0))
        if not open_sides:
            return
        looks, rate, weight = min(open_sides)
        whole = sum(w * sum(LENGTHS[k:]) for k, _, w in open_sides)
        yield pace.open("verify", rate, pace.left() * weight * LENGTHS[looks] / whole, 1)


def _showable(level: LoadLevel | None, pace: Pace, attain: float) -> bool:
    """Returns whether the time left for a level that is still undecided could show that it holds."""
    if level is None or level.looks >= LOOKS or level.verdict(attain) is not None:
        return True
    worth = level.worth * (1 + pace.left() * LOWER / (LOWER + 1) / level.window_s / OVERRATED)
    return wilson(level.share, worth, Z)[0] >= attain


def _tidy(rate: float) -> float:
    return float(f"{rate:.5g}")


def _holdable(known: Sequence[LoadLevel], pace: Pace, attain: float, tolerance: float, highest: float,
              logit: Curve | None) -> float:
    """Returns the highest rate, from `highest` down to two thirds of it, that its part of the time left can be expected
    to show to hold. Its share is that of the curve (`logit`) or else of the nearest rate that was run, less one
    standard error; its effective number a second is that of the nearest rate. Short runs overestimate that number, so
    only half of it counts."""
    for reach in np.arange(0.0, FURTHEST, tolerance / 4):
        rate = highest / (1 + float(reach))
        near = min(known, key=lambda level: abs(math.log(level.rate / rate)))
        worth = max(near.worth / near.window_s * pace.left() * LOWER / (LOWER + 1) / OVERRATED, 1.0)
        share = near.share if logit is None else 1 / (1 + math.exp(-min(logit(rate), 30.0)))
        share -= (share * (1 - share) / worth) ** 0.5
        if wilson(max(share, 0.0), worth, Z)[0] >= attain:
            return rate
    return highest / (1 + FURTHEST)


def _capped(below: float, most: float | None, tolerance: float) -> bool:
    return most is not None and below * (1 + tolerance) >= most


def _unsure(low: float, high: float | None, tolerance: float) -> str:
    if high is None:
        return "no rate was shown not to hold"
    if high / low > (1 + tolerance) ** 2 * 1.001:
        return f"known to {high / low - 1:.0%} only: a longer --budget is more precise"
    return ""
