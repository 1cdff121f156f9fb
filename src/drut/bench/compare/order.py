"""The order of turns: rounds in pairs, with the second in reverse order (ABBA), and a different first item in each
pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


def order(items: Sequence[T], number: int) -> list[T]:
    """Returns the order of `items` in round `number` (from 0).

    Over two rounds each item has the same mean position, so that a machine that becomes steadily slower favours none;
    over all pairs each item follows different ones.
    """
    if not items:
        return []
    shift = number // 2 % len(items)
    turned = [*items[shift:], *items[:shift]]
    return turned[::-1] if number % 2 else turned


class OrderTurn(NamedTuple):
    """The `place`-th turn of round `round`: a contestant at a cell. `again`: a second try, because the first was
    void."""

    round: int
    place: int
    cell: str
    contestant: str
    again: bool = False


def turns(rounds: int, cells: Sequence[str], contestants: Sequence[str],
          by_contestant: bool = False) -> list[OrderTurn]:
    """Returns all turns of a comparison, in order.

    The contestants of a cell follow each other, so that little time lies between turns that are compared;
    `by_contestant`: each contestant does all cells before the next one, for engines that are slow to switch.
    """
    found: list[OrderTurn] = []
    for number in range(rounds):
        names = order(contestants, number)
        pairs = ([(cell, name) for name in names for cell in cells] if by_contestant else
                 [(cell, name) for cell in cells for name in names])
        found += [OrderTurn(number, place, cell, name) for place, (cell, name) in enumerate(pairs)]
    return found
