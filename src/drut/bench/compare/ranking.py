"""Who is better than whom, as far as that can be told: groups of equals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Literal

from drut.bench.stats.paired import paired

Rounds = Mapping[int, float]  # a figure, by round


def groups(figures: Mapping[str, Rounds], better: Literal["more", "less"]) -> list[list[str]]:
    """The contestants, best group first, names sorted within each.

    "A is not worse than B" holds where A is better, or the two cannot be told apart. A group is a largest set whose
    members are not worse than each other by a chain of such steps (a strongly connected component). Since of any two
    one at least is not worse, the groups stand in one order; it depends on the figures alone. So what cannot be told
    apart is never ranked, be it by way of a third, and to part equals by chance every pair between the two parts
    must look different.
    """
    beats = {(a, b) for a, b in combinations(sorted(figures), 2) if _beats(figures[a], figures[b], better)}
    beats |= {(b, a) for a, b in combinations(sorted(figures), 2) if _beats(figures[b], figures[a], better)}
    reach = {name: _reach(name, figures, beats) for name in figures}
    components = {frozenset(other for other in reach[name] if name in reach[other]) for name in figures}
    return [sorted(part) for part in sorted(components, key=lambda part: -len(reach[min(part)]))]


def _beats(a: Rounds, b: Rounds, better: Literal["more", "less"]) -> bool:
    if (ratio := paired(a, b)) is not None:
        return ratio.apart and (ratio.value > 1) == (better == "more")
    turned = paired(b, a)  # over one whose figures are all 0 there is no ratio
    return turned is not None and turned.apart and (turned.value < 1) == (better == "more")


def _reach(start: str, names: Collection[str], beats: Collection[tuple[str, str]]) -> set[str]:
    """All that `start` is not worse than, directly or by others."""
    seen, todo = {start}, [start]
    while todo:
        at = todo.pop()
        for name in names:
            if name not in seen and (name, at) not in beats:
                seen.add(name)
                todo.append(name)
    return seen


def places(ranked: Sequence[Sequence[str]]) -> dict[str, str]:
    """A place for each: `1`, or `2-4` for three that share the places after it."""
    found: dict[str, str] = {}
    first = 1
    for group in ranked:
        last = first + len(group) - 1
        found |= dict.fromkeys(group, f"{first}" if first == last else f"{first}-{last}")
        first = last + 1
    return found
