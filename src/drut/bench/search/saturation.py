"""The capacity of a server that always has waiting work: a closed loop with more and more users."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from drut.bench.search.pace import Pace
from drut.bench.search.schema import SearchAnswer
from drut.bench.search.trial import BLOCKS, SearchTrial, TrialAsk
from drut.bench.stats.quantiles import t_half

GROWS = 1.05  # factor on the previous maximum: less is not growth
FLAT = 2  # points without growth that end the climb
MAX_USERS = 512
CONFIRMS = 2
MAX_SHARES = 2.0  # factor on its share of the budget that a climb may take while throughput still grows


def climb(trials: Sequence[SearchTrial], pace: Pace, curve: Sequence[int], share_s: float) -> Generator[TrialAsk,
                                                                                                        SearchTrial,
                                                                                                        None]:
    """Yields runs with the users of `curve`, doubling from there until throughput has not grown for two steps; then
    fresh runs with the best number of users, because the maximum of several noisy figures is too high."""
    each = share_s / (8 + 2 * CONFIRMS)
    most, flat, users = 0.0, 0, 0
    steps = [*curve]
    spent_by = pace.left() - MAX_SHARES * share_s
    while steps or (flat < FLAT and 2 * users <= MAX_USERS and pace.left() > spent_by):
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


def saturation(trials: Sequence[SearchTrial]) -> SearchAnswer:
    """Returns the saturation by the runs that confirm the maximum, with a 95 % interval over tenths of their windows.
    Without a fresh run that confirms it there is no value: the maximum of several noisy figures is too high."""
    best = _best(trials)
    if best is None:
        return SearchAnswer(None, why="no valid run of a closed loop")
    users = best.ask.concurrency or 1
    if best.served_per_s <= 0:
        return SearchAnswer(None, why="no request was served in a closed loop")
    fresh = [trial for trial in trials if trial.ask.phase == "saturate" and trial.valid]
    if not fresh:
        grows = "throughput still grew" if _grows(trials) else "no fresh run confirmed the maximum of the curve,"
        return SearchAnswer(None, low=best.served_per_s, why=f"{grows} at {users} at a time")
    tenths = [float(x) for trial in fresh for x in trial.served]
    mean = sum(tenths) / len(tenths)
    spread = (sum((x - mean) ** 2 for x in tenths) / (len(tenths) - 1) / len(tenths)) ** 0.5
    half = t_half(BLOCKS - 1) * spread
    return SearchAnswer(mean, mean - half, mean + half)


def ceiling(trials: Sequence[SearchTrial]) -> float | None:
    """Returns the saturation as far as it is known, confirmed or not; None: throughput never stopped growing."""
    found, best = saturation(trials), _best(trials)
    if found.value is None and best is not None and best.served_per_s > 0 and not _grows(trials):
        return best.served_per_s
    return found.value


def served_most(trials: Sequence[SearchTrial]) -> float:
    """Returns the highest measured rate."""
    return max((t.served_per_s for t in trials if t.valid and t.ask.concurrency is not None), default=0.0)


def _scale(trials: Sequence[SearchTrial]) -> float:
    """Returns the highest rate of any run, valid or not: accurate enough to plan the length of the next run, which
    would be far too long without it if most runs are void."""
    return max((t.served_per_s for t in trials if t.ask.concurrency is not None), default=0.0)


def tokens_at_saturation(trials: Sequence[SearchTrial]) -> float | None:
    """Returns the output tokens a second of the runs that confirmed the saturation."""
    rates = [rate for t in trials if t.ask.phase == "saturate" and t.valid
             and isinstance(rate := t.figures.get("output_tokens_per_s"), float)]
    return sum(rates) / len(rates) if rates else None


def _climbed(trials: Sequence[SearchTrial]) -> list[SearchTrial]:
    return sorted((t for t in trials if t.ask.concurrency is not None and t.ask.phase == "curve" and t.valid),
                  key=lambda t: t.ask.concurrency or 0)


def _best(trials: Sequence[SearchTrial]) -> SearchTrial | None:
    return max(_climbed(trials), key=lambda t: t.served_per_s, default=None)


def _grows(trials: Sequence[SearchTrial]) -> bool:
    """Returns whether the point with the most users exceeded all earlier ones."""
    *before, last = _climbed(trials)
    return last.served_per_s > GROWS * max((t.served_per_s for t in before), default=0.0)
