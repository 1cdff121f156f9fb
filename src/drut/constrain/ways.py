"""Estimates the cost of intersecting regular expressions, so that it can be bounded before the library does it.

A symbolic derivative of an expression has a term for each class that can match the next character, and the terms of
one character are its ways: `[ab]*[ac]*b` has two for `a`. The library derives an intersection as the product of the
terms of its members, and checks its fuel only after a derivative is complete. So n members with w ways each take w^n
steps, and no limit of the library ends them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

from drut.errors import RequestError

MOST_WAYS = 1 << 13  # of one intersection
LEAST = 3  # assumed for a pattern, so that 8 are the maximum
BOUND = "at most 8 short ones are allowed"
MOST_IN_ALL = 1 << 17  # of all intersections of one schema or grammar
MOST_OF_NAMES = 1 << 10  # the sum over all patternProperties, since the library intersects each pair
ATOM = re.compile(r"\[(?P<ranges>[^\]]*)\]|\\(?P<property>[pP])\{[^}]*\}|\\x\{(?P<hex>[0-9a-f]+)\}|\(\?:|\{[\d,]*\}"
                  r"|(?P<char>[A-Za-z0-9])")
POINT = r"(?:\\x\{([0-9a-f]+)\}|([A-Za-z0-9]))"
RANGE = re.compile(rf"{POINT}-{POINT}")
NEGATED = r"^\x{0}-"  # the empty class
# Characters that count as one, because their encodings share bytes: those that JSON escapes, and those beyond ASCII.
PLAIN = [point for point in range(0x20, 0x7F) if chr(point) not in '"\\']
ESCAPED, WIDE = -1, -2
# The tokens of the library: a regular expression may contain line ends. The library refuses unclosed ones.
TOKEN = re.compile(r"""
    (?://|\#)[^\n]*
  | ^[ \t]*[?!]*(?P<head>[A-Za-z_]\w*)(?:\[[^\]\n]*\])?(?:\.-?\d+)?[ \t]*:(?!:)
  | (?P<text>"(?:\\.|[^"\\\n])*"?)
  | (?P<regex>/(?:\\.|[^/\\])+/?)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<both>&)
""", re.VERBOSE | re.MULTILINE | re.DOTALL)
LARK_ATOM = re.compile(r"\[(?:\\.|[^\]\\])*\]?|\\[pPxu]\{[^}]{0,60}\}|\\.|\{[\d,]*\}|\(\?:|[^(){}|*+?]", re.DOTALL)


def of_pattern(pattern: str) -> int:
    """Returns the maximum number of ways of a pattern, in the library's notation, over all characters: an upper bound,
    the occurrences of classes that contain the character."""
    ways = dict.fromkeys((*PLAIN, ESCAPED, WIDE), 0)
    known: dict[str, set[int]] = {}
    for atom in ATOM.finditer(pattern):
        if atom[0] not in known:
            known[atom[0]] = _keys(atom)
        for key in known[atom[0]]:
            ways[key] += 1
    return max(LEAST, *ways.values())


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


def check_lark(text: str, name: str) -> None:
    """Raises RequestError if an intersection of terminals, with `&`, is too costly.

    `text`: a grammar in Lark, in which the schemas behind %json are blank.
    """
    bodies = _bodies(text)
    joined = [rule for rule, body in bodies.items() if any(token.lastgroup == "both" for token in body)]
    known: dict[str, int] = {}

    def of_rule(rule: str) -> int:
        """Returns an upper bound: without brackets the product is larger, since each part has one way or more."""
        if rule not in known:
            known[rule] = 1  # for a recursive rule
            sums = [0]
            for token in bodies.get(rule, ()):
                match token.lastgroup:
                    case "both":
                        sums.append(0)
                    case "name":
                        sums[-1] += of_rule(token[0])
                    case "regex":
                        sums[-1] += len(LARK_ATOM.findall(token[0], 1, len(token[0]) - 1))
                    case "text":
                        sums[-1] += 1
            known[rule] = min(MOST_IN_ALL + 1, prod(max(1, ways) for ways in sums))
        return known[rule]

    try:
        found = {rule: of_rule(rule) for rule in joined}
    except RecursionError:
        raise RequestError(f"{name}: terminals are nested too deeply for a grammar with &") from None
    for rule, ways in found.items():
        if ways > MOST_WAYS:
            raise RequestError(f"{name}: the intersection in {rule!r} is too costly; {BOUND} to be joined by &")
    if sum(found.values()) > MOST_IN_ALL:
        raise RequestError(f"{name}: the intersections of terminals are too costly in all")


def _bodies(text: str) -> dict[str, list[re.Match[str]]]:
    """Returns the tokens of each rule. The first rule of a nested grammar may count as part of the outer one."""
    found: dict[str, list[re.Match[str]]] = {}
    body = list[re.Match[str]]()
    for token in TOKEN.finditer(text):
        if token.lastgroup == "head":
            body = found.setdefault(token["head"], [])
        elif token.lastgroup is not None:
            body.append(token)
    return found
