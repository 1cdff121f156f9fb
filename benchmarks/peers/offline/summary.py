"""Medians with ranges of what the rounds gave, and ratios taken within rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report import Spread

Record = Mapping[str, Any]


def spread(values: Sequence[float]) -> Spread | None:
    """None where there is no figure."""
    return Spread.of(values) if values else None


def speed(rounds: Sequence[Record], name: str) -> Spread | None:
    """Tokens a second of one engine."""
    return spread([record["speed"][name] for record in rounds if name in record["speed"]])


def ratio(rounds: Sequence[Record], name: str, other: str) -> Spread | None:
    """Speed of `name` over that of `other`, each within a round; rounds that one of them missed do not count."""
    return spread([record["speed"][name] / record["speed"][other] for record in rounds
                   if name in record["speed"] and other in record["speed"]])


def cpus(rounds: Sequence[Record], name: str) -> Spread | None:
    """How many CPUs the engine kept busy in its turns."""
    return spread([record["cpus"][name] for record in rounds if name in record["cpus"]])


def others(rounds: Sequence[Record]) -> Spread | None:
    """How many CPUs processes that are no part of the comparison used."""
    return spread([record["others_cpus"] for record in rounds if record.get("others_cpus") is not None])


def agreement(rounds: Sequence[Record], name: str, other: str) -> float | None:
    """Of all first tokens, the share in which two engines agree; None where they never met."""
    pairs = [pair for record in rounds if name in record["ids"] and other in record["ids"]
             for pair in zip(record["ids"][name], record["ids"][other], strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else None
