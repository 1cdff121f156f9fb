"""How an answer is drawn, checked where it is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drut.errors import RequestError

SEED_BITS = 64


@dataclass(frozen=True)
class SamplingParams:
    """Temperature 0 is greedy. Filters apply in the order top-k, top-p, min-p; 0, 1 and 0 switch them off.

    Raises RequestError naming the field and the value.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None  # None: drawn at random
    stop: Sequence[str] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        _integer("max_tokens", self.max_tokens, 1, 1 << 30)
        _number("temperature", self.temperature, 0.0, 100.0)
        _number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise RequestError("top_p must be above 0 and at most 1, not 0.0")
        _integer("top_k", self.top_k, 0, 1 << 30)
        _number("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            _integer("seed", self.seed, -(1 << SEED_BITS - 1), (1 << SEED_BITS) - 1)
        if not all(isinstance(s, str) and s for s in self.stop):
            raise RequestError("stop must hold strings that are not empty")


def _number(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RequestError(f"{name} must be a finite number, not {value!r}")
    if not low <= value <= high:
        raise RequestError(f"{name} must be from {low:g} to {high:g}, not {value!r}")


def _integer(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} must be an integer, not {value!r}")
    if not low <= value <= high:
        raise RequestError(f"{name} must be from {low} to {high}, not {value}")
