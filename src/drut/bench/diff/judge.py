"""The change of each figure, and whether it is more than chance."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

import msgspec

from drut.bench.report.documents import Document
from drut.bench.report.estimates import ANSWERS, MetricEstimate, estimates
from drut.bench.result.figures import FIGURES
from drut.bench.stats.distribution import Figure
from drut.bench.stats.quantiles import CONFIDENCE, t_quantile

USUAL = ("output_tokens_per_s", "goodput_per_s", "ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "e2e_ms_p50",
         "error_rate", *ANSWERS)
JUDGED = (*(name for name in FIGURES if name not in ("gpu_share", "client_cpu")), *ANSWERS)
MIN, MIN_SHARE = 0.05, 0.01

Verdict = Literal["better", "worse", "level", "unknown"]


class Change(msgspec.Struct, frozen=True):
    """The change from `a` to `b`. `change` is relative, or a difference if `unit` is share; with its interval.
    "unknown": one of the files has no interval of the figure."""

    of: str
    cell: str
    who: str
    figure: str
    unit: str
    better: Literal["more", "less"]
    a: Figure
    b: Figure
    change: float | None
    low: float | None
    high: float | None
    verdict: Verdict


class _Moved(NamedTuple):
    """A value on the scale on which figures are compared: logarithms, or shares unchanged."""

    by: float
    noise: float | None


def changes(a: Document, b: Document, figures: Collection[str] = USUAL, least: float = MIN) -> list[Change]:
    """Returns the changes of all `figures` that both files have. Figures without an interval are omitted unless
    requested by name.

    The errors of the two sides are added in squares (Welch); half-widths of brackets, which are not due to chance, are
    added directly. Of many figures some would change by chance: the 95 % intervals hold for all together (Bonferroni).
    """
    there = {e.key: e for e in estimates(a) if e.figure in figures}
    pairs = [(there[e.key], e) for e in estimates(b) if e.key in there]
    if figures is USUAL:
        pairs = [(one, other) for one, other in pairs
                 if "inf" in (one.value, other.value) or _moved(one, other, 1).noise is not None]
    tested = sum(bool(one.draws and other.draws) for one, other in pairs)
    return [_change(one, other, max(tested, 1), least) for one, other in pairs]


def _change(a: MetricEstimate, b: MetricEstimate, tested: int, least: float) -> Change:
    low = high = change = None
    verdict: Verdict = "unknown"
    if a.value == "inf" or b.value == "inf":
        verdict = "level" if a.value == b.value else "worse" if b.value == "inf" else "better"
    else:
        moved, share = _moved(a, b, tested), _additive(a, b)
        back = (lambda x: x) if share else math.expm1
        change = back(moved.by)
        if moved.noise is not None:
            low, high = back(moved.by - moved.noise), back(moved.by + moved.noise)
            beyond = abs(moved.by) > moved.noise and abs(change) > (min(least, MIN_SHARE) if share else least)
            verdict = "level" if not beyond else "better" if (change > 0) == (b.better == "more") else "worse"
    return Change(of=b.of, cell=b.cell, who=b.who, figure=b.figure, unit=b.unit, better=b.better, a=a.value, b=b.value,
                  change=change, low=low, high=high, verdict=verdict)


def _additive(a: MetricEstimate, b: MetricEstimate) -> bool:
    return a.unit == "share" or min(_number(a.value) or 0.0, _number(b.value) or 0.0) <= 0


def _moved(a: MetricEstimate, b: MetricEstimate, tested: int) -> _Moved:
    """Converts a value; NaN if it is not a number."""
    values = [_number(e.value) for e in (a, b)]
    if None in values:
        return _Moved(math.nan, None)
    one, other = (v for v in values if v is not None)
    additive = _additive(a, b)
    by = other - one if additive else math.log(other / one)
    halves = [_half(e, additive) for e in (a, b)]
    if None in halves:
        return _Moved(by, None)
    first, second = (h for h in halves if h is not None)
    if not (a.draws and b.draws):
        return _Moved(by, first + second)
    return _Moved(by, _noise(first, max(a.draws - 1, 1), second, max(b.draws - 1, 1), tested))


def _noise(first: float, df: int, second: float, other_df: int, tested: int) -> float:
    """Returns half the width of the interval of a difference, from the half-widths of its two sides and their degrees
    of freedom (Welch, 1947)."""
    tail = (1 - CONFIDENCE) / 2
    squares = [(half / t_quantile(1 - tail, n)) ** 2 for half, n in ((first, df), (second, other_df))]
    total = sum(squares)
    if total <= 0:
        return 0.0
    welch = total**2 / (squares[0] ** 2 / df + squares[1] ** 2 / other_df)
    return t_quantile(1 - tail / tested, max(int(welch + 1e-9), 1)) * math.sqrt(total)


def _half(e: MetricEstimate, additive: bool) -> float | None:
    low, high = _number(e.low), _number(e.high)
    if low is None or high is None or high < low:
        return None
    if additive:
        return (high - low) / 2
    return math.log(high / low) / 2 if low > 0 else None


def _number(value: Figure) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def worse(found: Sequence[Change]) -> list[Change]:
    """Returns the figures that became worse."""
    return [change for change in found if change.verdict == "worse"]
