"""Quantities over the time of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drut.bench.load.record import LoadRecord
from drut.bench.load.wire import MeasureWindow
from drut.bench.metrics.request import Timing
from drut.bench.metrics.tokens import carried, reported_tokens
from drut.bench.stats.distribution import Floats


class Concurrency:
    """The number of requests in flight, from sent to ended, as a step function of time."""

    def __init__(self, records: Sequence[LoadRecord]) -> None:
        sent = np.sort([r.sent for r in records if r.sent is not None])
        ended = np.sort([np.inf if r.ended is None else r.ended for r in records if r.sent is not None])
        self._sent, self._ended = sent, ended

    def at(self, times: Floats) -> Floats:
        """Returns the number right after each of `times`."""
        return (np.searchsorted(self._sent, times, "right") - np.searchsorted(self._ended, times, "right")).astype(
            np.float64)

    def area(self, edges: Floats) -> Floats:
        """Returns the request-seconds in each interval between successive `edges`."""
        return np.diff(_ramps(self._sent, edges) - _ramps(self._ended[np.isfinite(self._ended)], edges))

    def most(self, begin: float, end: float) -> int:
        """Returns the maximum in [begin, end)."""
        moments = np.append(self._sent[(self._sent >= begin) & (self._sent < end)], begin)
        return int(self.at(moments).max())


def _ramps(starts: Floats, times: Floats) -> Floats:
    """Returns the sum over starts of max(0, t - start), at each of `times`."""
    before = np.searchsorted(starts, times)
    return before * times - np.concatenate(([0.0], np.cumsum(starts)))[before]


class Arrivals:
    """The output tokens of all requests, measured or not, failed or not, with their arrival times.

    If the number of tokens of a response is unknown (it was cut, or has not ended), it is estimated by the run's mean
    of characters per token.
    """

    def __init__(self, records: Sequence[LoadRecord], timings: Sequence[Timing]) -> None:
        known = [(sum(r.chars), t.tokens) for r, t in zip(records, timings, strict=True) if t.tokens is not None]
        chars, tokens = (sum(column) for column in zip(*known, strict=True)) if known else (0, 0)
        per_char = tokens / chars if chars else None
        times: list[Floats] = [np.zeros(0)]
        parts: list[Floats] = [np.zeros(0)]
        self.unknown = 0  # responses whose number of tokens cannot even be estimated
        for record, timing in zip(records, timings, strict=True):
            if not record.arrivals:
                continue
            if timing.tokens is not None:
                weights = carried(record, timing.tokens).astype(np.float64)
            elif (reported := reported_tokens(record)) is not None:
                weights = np.asarray(reported, np.float64)
            elif per_char is not None:
                weights = np.asarray(record.chars) * per_char
            else:
                self.unknown += 1
                continue
            times.append(np.asarray(record.arrivals))
            parts.append(weights)
        self.times, self.tokens = np.concatenate(times), np.concatenate(parts)

    def within(self, edges: Floats) -> Floats:
        """Returns the tokens in each interval [edge, next edge)."""
        return np.histogram(self.times, _half_open(edges), weights=self.tokens)[0]


def _half_open(edges: Floats) -> Floats:
    """Returns the same intervals for np.histogram, whose last one would include its end."""
    return np.append(edges[:-1], np.nextafter(edges[-1], -np.inf))


def seconds_of(window: MeasureWindow, step: float = 1.0) -> Floats:
    """Returns the edges of the whole steps of the window, without a partial last one."""
    return np.asarray(window.begin + step * np.arange(int(window.length / step + 1e-9) + 1), np.float64)
