"""Arrival times of sessions in an open loop: absolute times, drawn beforehand from a seed.

An arrival process of rate 1 is mapped to a rate that may change: the k-th arrival comes when the integral of the rate
reaches the k-th time of the unit process. Stochastic processes start in equilibrium: the first gap is the rest of a gap
that began before time 0. So the expected number of arrivals in any interval is exactly the integral of the rate over
it; a process that starts with a whole gap would differ by (cv^2 - 1) / 2 arrivals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from drut.errors import RequestError

Arrivals = Literal["constant", "poisson", "gamma"]
Floats = npt.NDArray[np.float64]
_DRAWN = 1024  # gaps drawn at a time


class ArrivalRate(msgspec.Struct, frozen=True):
    """A rate in sessions per second: `start` until `ramp_from_s`, then linear to `end` at `ramp_to_s`, then `end`. An
    infinite rate, without a ramp, has all sessions at time 0."""

    start: float
    end: float
    ramp_from_s: float = 0.0
    ramp_to_s: float = 0.0

    def __post_init__(self) -> None:
        if self.at_once:
            return
        for name, rate in (("rate", self.start), ("ramp's last rate", self.end)):
            if not (math.isfinite(rate) and rate > 0):
                raise RequestError(f"the {name} must be a positive number of sessions per second, not {rate}")
        if not 0 <= self.ramp_from_s <= self.ramp_to_s:
            raise RequestError("a ramp must not end before it begins")

    @classmethod
    def steady(cls, rate: float) -> ArrivalRate:
        """Returns a constant rate."""
        return cls(rate, rate)

    @property
    def at_once(self) -> bool:
        """Returns whether all sessions arrive at time 0."""
        return self.start == self.end == math.inf

    def expected(self, t: float) -> float:
        """Returns the integral of the rate over [0, t]: the expected number of sessions until `t` seconds."""
        in_ramp = min(max(t - self.ramp_from_s, 0.0), self.ramp_to_s - self.ramp_from_s)
        return (self.start * min(t, self.ramp_from_s) + in_ramp * (self.start + self._at(in_ramp)) / 2
                + self.end * max(t - self.ramp_to_s, 0.0))

    def when(self, count: float) -> float:
        """Returns the inverse of `expected`: the time in seconds at which `count` sessions are expected to have
        arrived."""
        before, within = self.start * self.ramp_from_s, self.expected(self.ramp_to_s)
        if count <= before:
            return count / self.start
        if count >= within:
            return self.ramp_to_s + (count - within) / self.end
        slope = (self.end - self.start) / (self.ramp_to_s - self.ramp_from_s)
        more = count - before  # = start * x + slope / 2 * x^2, solved without cancellation
        return self.ramp_from_s + 2 * more / (self.start + math.sqrt(self.start**2 + 2 * slope * more))

    def _at(self, in_ramp: float) -> float:
        length = self.ramp_to_s - self.ramp_from_s
        return self.start + (self.end - self.start) * in_ramp / length if length else self.start


class Schedule(msgspec.Struct, frozen=True):
    """An arrival process over a rate. `cv` is the coefficient of variation of gamma-distributed gaps: 1 is a Poisson
    process, more is burstier; vLLM's `burstiness` is 1 / cv^2."""

    rate: ArrivalRate
    arrivals: Arrivals = "poisson"
    cv: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1e-3 <= self.cv <= 1e3:  # beyond these limits gamma gaps are constant, or all but one are 0
            raise RequestError(f"the coefficient of variation must be a number from 0.001 to 1000, not {self.cv}")

    def times(self) -> Iterator[float]:
        """Yields the arrival times in seconds from the start of the run, ascending, without end."""
        if self.rate.at_once:
            yield from itertools.repeat(0.0)
        for count in self._unit_times():
            yield self.rate.when(count)

    def until(self, end_s: float) -> list[float]:
        """Returns all times before `end_s`."""
        result = []
        for t in self.times():
            if t >= end_s:
                break
            result.append(t)
        return result

    def _unit_times(self) -> Iterator[float]:
        """Yields the arrival times of the process with rate 1."""
        if self.arrivals == "constant":
            count = 0
            while True:
                yield float(count)
                count += 1
        rng = np.random.default_rng(self.seed)
        shape = 1.0 if self.arrivals == "poisson" else self.cv**-2
        # The rest of a gap at a random time: a uniform part of a gap drawn in proportion to its length.
        at = rng.gamma(shape + 1.0, 1.0 / shape) * rng.random()
        yield at
        while True:
            for gap in rng.gamma(shape, 1.0 / shape, _DRAWN):
                at += float(gap)
                yield at
