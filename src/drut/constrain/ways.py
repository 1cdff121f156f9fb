"""Estimates the cost of intersecting regular expressions, so that it can be bounded before the library does it.

A symbolic derivative of an expression has a term for each class that can match the next character, and the terms of
one character are its ways: `[ab]*[ac]*b` has two for `a`. The library derives an intersection as the product of the
terms of its members, and checks its fuel only after a derivative is complete. So n members with w ways each take w^n
steps, and no limit of the library ends them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import prod

MAX_WAYS = 1 << 13  # of one intersection
MIN = 3  # assumed for a pattern, so that 8 are the maximum
BOUND = "at most 8 short ones are allowed"
MAX_IN_ALL = 1 << 17  # of all intersections of one schema or grammar
MAX_OF_NAMES = 1 << 10  # the sum over all patternProperties, since the library intersects each pair
GROUPS = r"(?P<open>\((?:\?[a-z-]{0,9}:|\?P?<\w{1,60}>)?)|(?P<close>\))|\{(?P<times>\d*,?\d*)\}"
ATOM = re.compile(rf"\[(?P<ranges>[^\]]*)\]|\\(?P<property>[pP])\{{[^}}]*\}}|\\x\{{(?P<hex>[0-9a-f]+)\}}|{GROUPS}"
                  r"|(?P<char>[A-Za-z0-9])")
LITERAL = re.compile(rf"\[(?:\\.|[^\]\\])*\]?|\\[pPxu]\{{[^}}]{{0,60}}\}}|\\.|{GROUPS}|[^|*+?]", re.DOTALL)  # in Lark
POINT = r"(?:\\x\{([0-9a-f]+)\}|([A-Za-z0-9]))"
RANGE = re.compile(rf"{POINT}-{POINT}")
NEGATED = r"^\x{0}-"  # the empty class
# Characters that count as one, because their encodings share bytes: those that JSON escapes, and those beyond ASCII.
PLAIN = [point for point in range(0x20, 0x7F) if chr(point) not in '"\\']
ESCAPED, WIDE = -1, -2
ALL = -3  # the key of all atoms


def of_pattern(pattern: str) -> int:
    """Returns the maximum number of ways of a pattern, in the library's notation, over all characters: an upper bound,
    the occurrences of classes that contain the character."""
    known: dict[str, set[int]] = {}

    def keys(atom: re.Match[str]) -> set[int]:
        if atom[0] not in known:
            known[atom[0]] = _keys(atom)
        return known[atom[0]]

    counts = _counts(ATOM.finditer(pattern), keys)
    return max((MIN, *(count for key, count in counts.items() if key != ALL)))


def of_literal(regex: str) -> int:
    """Returns the number of atoms in a regular expression of a grammar in Lark: an upper bound of its ways."""
    return _counts(LITERAL.finditer(regex), lambda atom: set())[ALL]


def _counts(tokens: Iterator[re.Match[str]], keys: Callable[[re.Match[str]], set[int]]) -> Counter[int]:
    """Returns the number of atoms of each key. A group of several counts as often as it may be repeated: after each
    repetition its rest is another one."""
    stack, group = [Counter[int]()], Counter[int]()
    for token in tokens:
        if token["open"] is not None:
            stack.append(Counter())
        elif token["close"] is not None:
            group = stack.pop() if len(stack) > 1 else Counter()
            stack[-1].update(group)
        elif token["times"] is not None:
            more = max_times(token["times"]) - 1 if group[ALL] > 1 else 0
            stack[-1].update({key: count * more for key, count in group.items()})
        else:
            group = Counter()
            stack[-1].update(keys(token) | {ALL})
    return sum(stack, Counter())


def max_times(text: str) -> int:
    """Returns the largest number of a repetition."""
    return max((1, *map(int, re.findall(r"\d{1,9}", text))))


def of_all(ways: Iterable[int]) -> int:
    """Returns the ways of an intersection; 0 if there is only one member."""
    found = list(ways)
    return prod(found) if len(found) > 1 else 0


def _keys(atom: re.Match[str]) -> set[int]:
    if atom["property"] is not None:
        return {*PLAIN, ESCAPED, WIDE}
    if atom["char"] is not None:
        return _bucket(ord(atom["char"]), ord(atom["char"]))
    if atom["hex"] is not None:
        return _bucket(int(atom["hex"], 16), int(atom["hex"], 16))
    ranges = atom["ranges"]
    if ranges is None or ranges.startswith(NEGATED):
        return set()
    return set[int]().union(*(_bucket(_point(ends[1], ends[2]), _point(ends[3], ends[4]))
                              for ends in RANGE.finditer(ranges)))


def _point(digits: str | None, char: str) -> int:
    return int(digits, 16) if digits is not None else ord(char)


def _bucket(low: int, high: int) -> set[int]:
    """Returns the characters of a range, with ESCAPED and WIDE for those that count as one."""
    found = {point for point in range(max(low, 0x20), min(high, 0x7E) + 1) if chr(point) not in '"\\'}
    if low < 0x20 or any(low <= point <= high for point in (0x22, 0x5C, 0x7F)):
        found.add(ESCAPED)
    return found | {WIDE} if high > 0x7F else found
