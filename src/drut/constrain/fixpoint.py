"""A least fixpoint over alternatives, computed from the leaves on."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def least_fixpoint(needs: Mapping[K, Iterable[Collection[K]]]) -> set[K]:
    """Returns the keys with an alternative that needs none but such keys. Linear in the size of `needs`.

    `needs`: for each key, by alternative, the different keys that it needs; each of them is a key of `needs`, too.
    """
    found, ready = set[K](), list[K]()
    users: dict[K, list[tuple[K, int]]] = {}
    missing: dict[tuple[K, int], int] = {}
    for key, alternatives in needs.items():
        for i, needed in enumerate(alternatives):
            missing[key, i] = len(needed)
            ready += [] if needed else [key]
            for other in needed:
                users.setdefault(other, []).append((key, i))
    while ready:
        key = ready.pop()
        if key in found:
            continue
        found.add(key)
        for user in users.get(key, ()):
            missing[user] -= 1
            ready += [] if missing[user] else [user[0]]
    return found
