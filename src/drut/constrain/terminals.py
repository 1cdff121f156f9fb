"""Bounds the intersections of terminals in a grammar in Lark, which a client writes with `&`."""

from __future__ import annotations

import re
from math import prod

from drut.constrain import ways
from drut.errors import RequestError

# The tokens of the library: a regular expression may contain line ends. The library refuses unclosed ones.
TOKEN = re.compile(r"""
    (?://|\#)[^\n]*
  | ^[ \t]*[?!]*(?P<head>[A-Za-z_]\w*)(?:\[[^\]\n]*\])?(?:\.-?\d+)?[ \t]*:(?!:)
  | (?P<text>"(?:\\.|[^"\\\n])*"?)
  | (?P<regex>/(?:\\.|[^/\\])+/?)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<both>&)
  | (?P<times>\{[ \t]*\d*[ \t]*,?[ \t]*\d*[ \t]*\}|~[ \t]*\d+(?:[ \t]*\.\.[ \t]*\d+)?)
""", re.VERBOSE | re.MULTILINE | re.DOTALL)


def check(text: str, name: str) -> None:
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
                        sums[-1] += ways.of_literal(token[0][1:-1])
                    case "text":
                        sums[-1] += 1
                    case "times":
                        sums[-1] *= ways.max_times(token[0])
            known[rule] = min(ways.MAX_IN_ALL + 1, prod(max(1, count) for count in sums))
        return known[rule]

    try:
        found = {rule: of_rule(rule) for rule in joined}
    except RecursionError:
        raise RequestError(f"{name}: terminals are nested too deeply for a grammar with &") from None
    for rule, count in found.items():
        if count > ways.MAX_WAYS:
            raise RequestError(f"{name}: the intersection in {rule!r} is too costly; {ways.BOUND} to be joined by &")
    if sum(found.values()) > ways.MAX_IN_ALL:
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
