"""Medians over rounds with ranges, and ratios within rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report import Spread

Record = Mapping[str, Any]


def spread(values: Sequence[float]) -> Spread | None:
    """Returns the spread; None if there is no value."""
    return Spread.of(values) if values else None


def speed(rounds: Sequence[Record], name: str) -> Spread | None:
    """Returns the tokens per second of one engine."""
    return spread([record["speed"][name] for record in rounds if name in record["speed"]])


def ratio(rounds: Sequence[Record], name: str, other: str) -> Spread | None:
    """Returns the speed of `name` over that of `other`, within rounds; rounds without both do not count."""
    return spread([record["speed"][name] / record["speed"][other] for record in rounds
                   if name in record["speed"] and other in record["speed"]])


def cpus(rounds: Sequence[Record], name: str) -> Spread | None:
    """Returns the number of CPUs that the engine kept busy in its turns."""
    return spread([record["cpus"][name] for record in rounds if name in record["cpus"]])


def others(rounds: Sequence[Record]) -> Spread | None:
    """Returns the number of CPUs used by processes outside the comparison."""
    return spread([record["others_cpus"] for record in rounds if record.get("others_cpus") is not None])


def agreement(rounds: Sequence[Record], name: str, other: str) -> float | None:
    """Returns the share of first tokens on which two engines agree; None if they have no round in common."""
    pairs = [pair for record in rounds if name in record["ids"] and other in record["ids"]
             for pair in zip(record["ids"][name], record["ids"][other], strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else None
