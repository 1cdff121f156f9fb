"""A server with so many slots, first come first served, in virtual time: what a search is tried on, and where the truth
that it is to find comes from, by runs far longer than its own. Nothing here is of the code under test."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Server:
    """`first` and `rest` draw the seconds from the start of service to the first token, and from there to the last.
    `constant`: both always the same, which is simulated without a loop."""

    slots: int
    first: Draw
    rest: Draw
    constant: bool = False

    def serve(self, at: Floats, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
        """Of requests that arrive `at`, ascending: waits, TTFT, E2E."""
        first, rest = self.first(rng, len(at)), self.rest(rng, len(at))
        service = first + rest
        wait = self._cyclic(at, float(service[0])) if self.constant and len(at) else self._queue(at, service)
        return wait, wait + first, wait + service

    def _cyclic(self, at: Floats, service: float) -> Floats:
        """With constant service every slots-th request goes to the same slot: start_k = max over j <= k of
        at_j + (k - j) service."""
        n = len(at)
        rows = np.concatenate((at, np.full(-n % self.slots, at[-1]))).reshape(-1, self.slots)
        k = np.arange(len(rows))[:, None] * service
        starts = np.maximum.accumulate(rows - k, 0) + k
        return np.asarray((starts - rows).ravel()[:n])

    def _queue(self, at: Floats, service: Floats) -> Floats:
        free = [0.0] * self.slots
        waits = np.empty(len(at))
        for i, (t, s) in enumerate(zip(at.tolist(), service.tolist(), strict=True)):
            start = max(t, free[0])
            heapq.heapreplace(free, start + s)
            waits[i] = start - t
        return waits

    def poisson(self, rate: float, seconds: float, rng: np.random.Generator) -> Floats:
        """Arrivals until `seconds`."""
        n = int(rate * seconds + 6 * (rate * seconds) ** 0.5 + 20)
        at = np.cumsum(rng.exponential(1 / rate, n))
        return at[at < seconds]

    def mean_service(self) -> float:
        """By a million draws."""
        rng = np.random.default_rng(99)
        return float((self.first(rng, 1_000_000) + self.rest(rng, 1_000_000)).mean())

    def saturation(self) -> float:
        """Requests a second with all slots busy."""
        return self.slots / self.mean_service()

    def slo_rate(self, ttft: float, attain: float, n: int = 400_000) -> float:
        """The rate at which a share `attain` of requests has its first token in time, by bisection over one long
        simulation each, of the same random numbers."""
        low, high = 0.0, self.saturation()
        for _ in range(16):
            rate = (low + high) / 2
            rng = np.random.default_rng(7)
            _, first, _ = self.serve(np.cumsum(rng.exponential(1 / rate, n)), rng)
            low, high = (rate, high) if (first[n // 20:] <= ttft).mean() >= attain else (low, rate)
        return low

    def knee(self, n: int = 400_000) -> float:
        """The rate with the most rate over mean E2E, by a parabola through the best of a grid: the definition itself,
        with no curve assumed."""
        most = self.saturation()
        shares = np.arange(0.3, 0.985, 0.01)
        power = []
        for share in shares:
            rng = np.random.default_rng(7)
            _, _, whole = self.serve(np.cumsum(rng.exponential(1 / (share * most), n)), rng)
            power.append(share / whole[n // 20:].mean())
        best = int(np.clip(np.argmax(power), 3, len(power) - 4))
        near = slice(best - 3, best + 4)
        a, b, _ = np.polyfit(shares[near], power[near], 2)
        return float(-b / (2 * a) * most)


def constant(seconds: float) -> Draw:
    return lambda _, n: np.full(n, seconds)


def uniform(low: float, high: float) -> Draw:
    return lambda rng, n: rng.uniform(low, high, n)


def lognormal(median: float, sigma: float) -> Draw:
    return lambda rng, n: median * np.exp(sigma * rng.standard_normal(n))
