"""Rankings as far as they are certain: groups of equal contestants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Literal

from drut.bench.stats.paired import paired

Rounds = Mapping[int, float]  # a figure, by round


def groups(figures: Mapping[str, Rounds], better: Literal["more", "less"]) -> list[list[str]]:
    """Returns the contestants, best group first, with sorted names within a group.

    "A is not worse than B" holds if A is better, or if the two are indistinguishable. A group is a largest set whose
    members are not worse than each other by a chain of such steps (a strongly connected component). Because of any two
    at least one is not worse, the groups have one order, which depends only on the figures. So indistinguishable
    contestants are never ranked, not even through a third one; and separating equals by chance requires that every pair
    between the two parts looks different.
    """
    beats = {(a, b) for a, b in combinations(sorted(figures), 2) if _beats(figures[a], figures[b], better)}
    beats |= {(b, a) for a, b in combinations(sorted(figures), 2) if _beats(figures[b], figures[a], better)}
    reach = {name: _reach(name, figures, beats) for name in figures}
    components = {frozenset(other for other in reach[name] if name in reach[other]) for name in figures}
    return [sorted(part) for part in sorted(components, key=lambda part: -len(reach[min(part)]))]


def _beats(a: Rounds, b: Rounds, better: Literal["more", "less"]) -> bool:
    if (ratio := paired(a, b)) is not None:
        return ratio.apart and (ratio.value > 1) == (better == "more")
    turned = paired(b, a)  # there is no ratio over figures that are all 0
    return turned is not None and turned.apart and (turned.value < 1) == (better == "more")


def _reach(start: str, names: Collection[str], beats: Collection[tuple[str, str]]) -> set[str]:
    """Returns all contestants that `start` is not worse than, directly or through others."""
    seen, todo = {start}, [start]
    while todo:
        at = todo.pop()
        for name in names:
            if name not in seen and (name, at) not in beats:
                seen.add(name)
                todo.append(name)
    return seen


def places(ranked: Sequence[Sequence[str]]) -> dict[str, str]:
    """Returns the place of each contestant: `1`, or `2-4` for three that share the places after it."""
    found: dict[str, str] = {}
    first = 1
    for group in ranked:
        last = first + len(group) - 1
        found |= dict.fromkeys(group, f"{first}" if first == last else f"{first}-{last}")
        first = last + 1
    return found
