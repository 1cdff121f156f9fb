"""Who runs when: rounds in pairs, the second of which turns the first around (ABBA), and a new first in each pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

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
