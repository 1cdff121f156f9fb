"""Lengths in tokens, drawn from a distribution given as text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from drut.errors import RequestError

MAX = 1 << 20
FORMS = "N, uniform:LOW:HIGH, or normal, lognormal or gamma:MEAN:SD[:LOW:HIGH]"
_SHAPED = ("normal", "lognormal", "gamma")
_TRIES = 10_000


@dataclass(frozen=True)
class Lengths:
    """Integer lengths from `low` to `high`: values outside are drawn again, never clipped to the bounds.

    MEAN and SD are those of the distribution before values outside are removed. The normal, lognormal and gamma
    parameters follow from them by moments.
    """

    kind: str
    mean: float
    sd: float
    low: int
    high: int

    @classmethod
    def parse(cls, text: str, name: str) -> Lengths:
        """Parses one of FORMS. Raises RequestError with the option `name` for all other texts."""
        try:
            lengths = cls._read(*text.split(":"))
        except ValueError:
            raise RequestError(f"{name} {text[:60]!r}: expected {FORMS}") from None
        lengths._check(text[:60], name)
        return lengths

    @classmethod
    def _read(cls, kind: str, *parts: str) -> Lengths:
        if not parts:
            return cls("constant", 0, 0, int(kind), int(kind))
        if kind == "uniform" and len(parts) == 2:
            return cls(kind, 0, 0, int(parts[0]), int(parts[1]))
        if kind in _SHAPED and len(parts) in (2, 4):
            low, high = (int(p) for p in parts[2:]) if parts[2:] else (1, MAX)
            return cls(kind, float(parts[0]), float(parts[1]), low, high)
        raise ValueError(kind)

    def draw(self, rng: np.random.Generator) -> int:
        """Draws a length."""
        if self.kind == "constant":
            return self.low
        if self.kind == "uniform":
            return int(rng.integers(self.low, self.high, endpoint=True))
        for _ in range(_TRIES):
            length = round(float(self._shaped(rng, 1)[0]))
            if self.low <= length <= self.high:
                return length
        raise RequestError(f"{self.kind}:{self.mean:g}:{self.sd:g}: nothing from {self.low} to {self.high}")

    def _shaped(self, rng: np.random.Generator, n: int) -> np.ndarray:
        if self.kind == "normal":
            return rng.normal(self.mean, self.sd, n)
        square = (self.sd / self.mean) ** 2
        if self.kind == "lognormal":
            spread = math.log1p(square)
            return rng.lognormal(math.log(self.mean) - spread / 2, math.sqrt(spread), n)
        return rng.gamma(1 / square, self.mean * square, n)

    def _check(self, text: str, name: str) -> None:
        if not 1 <= self.low <= self.high <= MAX:
            raise RequestError(f"{name} {text!r}: lengths must be from 1 to {MAX}, the lower first")
        if self.kind in _SHAPED:
            if not (0 < self.mean <= MAX and 0 < self.sd <= MAX):
                raise RequestError(f"{name} {text!r}: mean and SD must be above 0 and at most {MAX}")
            sample = self._shaped(np.random.default_rng(0), 1000).round()
            if np.mean((self.low <= sample) & (sample <= self.high)) < 0.01:
                raise RequestError(f"{name} {text!r}: almost nothing of it lies from {self.low} to {self.high}")
