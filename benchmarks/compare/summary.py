"""Medians with ranges of what the rounds gave, and ratios taken within rounds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Record = Mapping[str, Any]


class Range(NamedTuple):
    """Of the rounds' figures."""

    median: float
    low: float
    high: float

    def scaled(self, factor: float) -> Range:
        return Range(self.median * factor, self.low * factor, self.high * factor)

    def text(self, digits: int) -> str:
        """The median and, in brackets, the range."""
        median, low, high = (f"{value:.{digits}f}" for value in self)
        return f"{median} ({low} .. {high})"


def spread(values: Sequence[float]) -> Range | None:
    """None where there is no figure."""
    return Range(statistics.median(values), min(values), max(values)) if values else None


def speed(rounds: Sequence[Record], name: str) -> Range | None:
    """Tokens a second of one engine."""
    return spread([record["speed"][name] for record in rounds if name in record["speed"]])


def ratio(rounds: Sequence[Record], name: str, other: str) -> Range | None:
    """Speed of `name` over that of `other`, each within a round; rounds that one of them missed do not count."""
    return spread([record["speed"][name] / record["speed"][other] for record in rounds
                   if name in record["speed"] and other in record["speed"]])


def cpus(rounds: Sequence[Record], name: str) -> Range | None:
    """How many CPUs the engine kept busy in its turns."""
    return spread([record["cpus"][name] for record in rounds if name in record["cpus"]])


def others(rounds: Sequence[Record]) -> Range | None:
    """How many CPUs processes that are no part of the comparison used."""
    return spread([record["others_cpus"] for record in rounds if record.get("others_cpus") is not None])


def agreement(rounds: Sequence[Record], name: str, other: str) -> float | None:
    """Of all first tokens, the share in which two engines agree; None where they never met."""
    pairs = [pair for record in rounds if name in record["ids"] and other in record["ids"]
             for pair in zip(record["ids"][name], record["ids"][other], strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else None
