"""Who runs when: rounds in pairs, the second of which turns the first around (ABBA), and a new first in each pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


def order(items: Sequence[T], number: int) -> list[T]:
    """The order of `items` in round `number` (from 0).

    Over two rounds each item is on average at the same place, so that a machine that grows steadily slower favours
    none; over all pairs each item follows others than before.
    """
    if not items:
        return []
    shift = number // 2 % len(items)
    turned = [*items[shift:], *items[:shift]]
    return turned[::-1] if number % 2 else turned


class Turn(NamedTuple):
    """Who is measured at what, as the `place`-th of round `round`. `again`: since the first try is void."""

    round: int
    place: int
    cell: str
    contestant: str
    again: bool = False


def turns(rounds: int, cells: Sequence[str], contestants: Sequence[str], by_contestant: bool = False) -> list[Turn]:
    """All turns of a comparison, in order.

    Contestants follow each other cell by cell, so that little time lies between those that are compared;
    `by_contestant`: each does all cells before the next, where to change over is dear.
    """
    found: list[Turn] = []
    for number in range(rounds):
        names = order(contestants, number)
        pairs = ([(cell, name) for name in names for cell in cells] if by_contestant else
                 [(cell, name) for cell in cells for name in names])
        found += [Turn(number, place, cell, name) for place, (cell, name) in enumerate(pairs)]
    return found
