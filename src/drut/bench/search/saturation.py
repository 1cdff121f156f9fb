"""How much a server does with work always waiting: a closed loop with more and more users."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from drut.bench.search.pace import Pace
from drut.bench.search.schema import Answer
from drut.bench.search.trial import BLOCKS, Ask, Trial
from drut.bench.stats.quantiles import t_half

GROWS = 1.05  # times the most before: less is no growth
FLAT = 2  # points without growth that end the climb
MOST_USERS = 512
CONFIRMS = 2
MOST_SHARES = 2.0  # times its share of the budget, that a climb may take where throughput goes on growing


def climb(trials: Sequence[Trial], pace: Pace, curve: Sequence[int], share_s: float) -> Generator[Ask, Trial, None]:
    """Users in the steps of `curve`, and doubling from there until throughput has not grown for two steps; then fresh
    runs with as many as had the most, since the most of several noisy figures is too high."""
    each = share_s / (8 + 2 * CONFIRMS)
    most, flat, users = 0.0, 0, 0
    steps = [*curve]
    spent_by = pace.left() - MOST_SHARES * share_s
    while steps or (flat < FLAT and 2 * users <= MOST_USERS and pace.left() > spent_by):
        users = steps.pop(0) if steps else max(2 * users, 1)
        trial = yield pace.closed("curve", users, each, _scale(trials))
        if not trial.valid:
            continue
        flat = 0 if trial.served_per_s > GROWS * most else flat + 1
        most = max(most, trial.served_per_s)
    best = _best(trials)
    if best is not None and flat:
        for _ in range(CONFIRMS):
            yield pace.closed("saturate", best.ask.concurrency or 1, 2 * each, _scale(trials))


def saturation(trials: Sequence[Trial]) -> Answer:
    """Of the runs that confirm the most, with a 95 % interval over tenths of their windows. What no fresh run confirmed
    is no value: the most of several noisy figures is too high."""
    best = _best(trials)
    if best is None:
        return Answer(None, why="no valid run of a closed loop")
    users = best.ask.concurrency or 1
    if best.served_per_s <= 0:
        return Answer(None, why="no request was served in a closed loop")
    fresh = [trial for trial in trials if trial.ask.phase == "saturate" and trial.valid]
    if not fresh:
        grows = "throughput still grew" if _grows(trials) else "no fresh run confirmed the most of the curve,"
        return Answer(None, low=best.served_per_s, why=f"{grows} at {users} at a time")
    tenths = [float(x) for trial in fresh for x in trial.served]
    mean = sum(tenths) / len(tenths)
    spread = (sum((x - mean) ** 2 for x in tenths) / (len(tenths) - 1) / len(tenths)) ** 0.5
    half = t_half(BLOCKS - 1) * spread
    return Answer(mean, mean - half, mean + half)


def ceiling(trials: Sequence[Trial]) -> float | None:
    """The saturation as far as it is known, confirmed or not; None: none was met."""
    found, best = saturation(trials), _best(trials)
    if found.value is None and best is not None and best.served_per_s > 0 and not _grows(trials):
        return best.served_per_s
    return found.value


def served_most(trials: Sequence[Trial]) -> float:
    """The most that was seen to be served."""
    return max((t.served_per_s for t in trials if t.valid and t.ask.concurrency is not None), default=0.0)


def _scale(trials: Sequence[Trial]) -> float:
    """The most that was served in any run, void or not: near enough to say how long the next must be, which would be
    far too long without it where most are void."""
    return max((t.served_per_s for t in trials if t.ask.concurrency is not None), default=0.0)


def tokens_at_saturation(trials: Sequence[Trial]) -> float | None:
    """Output tokens a second of the runs that confirmed it."""
    rates = [rate for t in trials if t.ask.phase == "saturate" and t.valid
             and isinstance(rate := t.figures.get("output_tokens_per_s"), float)]
    return sum(rates) / len(rates) if rates else None


def _climbed(trials: Sequence[Trial]) -> list[Trial]:
    return sorted((t for t in trials if t.ask.concurrency is not None and t.ask.phase == "curve" and t.valid),
                  key=lambda t: t.ask.concurrency or 0)


def _best(trials: Sequence[Trial]) -> Trial | None:
    return max(_climbed(trials), key=lambda t: t.served_per_s, default=None)


def _grows(trials: Sequence[Trial]) -> bool:
    """Whether the point with the most users was more than any before."""
    *before, last = _climbed(trials)
    return last.served_per_s > GROWS * max((t.served_per_s for t in before), default=0.0)
