"""Parses a Lark grammar as far as necessary to find which rule needs which, and refuses rules that never end.

Syntax that is not understood here is left to the grammar library, which reads the grammar afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from drut.constrain.endless import check_ends
from drut.errors import RequestError

HEAD = re.compile(r"^[ \t]*[!?]*([A-Za-z_]\w*)[ \t]*(?:\[[^\]\n]*\])?[ \t]*(?:\.[ \t]*-?\d+)?[ \t]*:(?!:)",
                  re.MULTILINE)
TOKEN = re.compile(r"""
    (?P<space>\s+|//[^\n]*|\#[^\n]*|->[ \t]*\w+)
  | (?P<atom>"(?:\\.|[^"\\\n])*"i?|/(?:\\.|[^/\\\n])+/[imslux]*|<[^>\n]*>|%json\b|%lark\s*\{\s*\}|%regex\s*\{[^}]*\})
  | (?P<name>[A-Za-z_]\w*)
  | (?P<times>\{\s*(?P<low>\d*)\s*,?\s*\d*\s*\}|~\s*(?P<least>\d+)(?:\s*\.\.\s*\d+)?|[*+?])
  | (?P<mark>[()|\[\]&~])
""", re.VERBOSE)
NESTED = re.compile(r"%lark\s*\{")
QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"?|/(?:\\.|[^/\\\n])+/?|//[^\n]*')  # an unclosed one ends with its line
BLANK = re.compile(r"[^\n]")
Needs = list[set[str]]  # the needed rules, by alternative
MAX_NEEDS, MAX_BLOCKS = 64, 16


class _NotUnderstoodError(Exception):
    pass


def check(text: str, field: str) -> None:
    """Raises RequestError for a duplicate rule and for a rule that never ends. `text`: the grammar without the schemas
    behind %json."""
    if len(NESTED.findall(text)) > MAX_BLOCKS:  # each block is read together with its surroundings
        raise RequestError(f"{field}: more than {MAX_BLOCKS} grammars within it, as %lark {{...}}")
    for start, end in reversed(list(_blocks(text))):
        inside = BLANK.sub(" ", text[:start]) + text[start:end]
        check(inside, field)
        text = text[:start] + BLANK.sub(" ", text[start:end]) + text[end:]
    heads = list(HEAD.finditer(text))
    if not heads:
        raise RequestError(f"{field}: it has no rules, which have the form `start: ...`")
    lines = {head[1]: text.count("\n", 0, head.start(1)) + 1 for head in reversed(heads)}
    if len(lines) < len(heads):
        names = [head[1] for head in heads]
        twice = next(head for i, head in enumerate(heads) if head[1] in names[:i])
        line = text.count("\n", 0, twice.start(1)) + 1
        raise RequestError(f"{field}: the rule {twice[1]!r} is defined already, line {lines[twice[1]]} (line {line})")
    needs: dict[str, Needs] = {}
    uses: dict[str, set[str]] = {}
    ends = [head.start() for head in heads[1:]] + [len(text)]
    try:
        for head, end in zip(heads, ends, strict=True):
            body = _Body(text[head.end() : end])
            needs[head[1]], uses[head[1]] = body.needs(), body.names
    except _NotUnderstoodError:
        return
    check_ends(field, "start", uses, needs, lambda name: f"line {lines[name]}")


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yields the ranges of outermost grammars in `%lark {...}`."""
    end = 0
    for block in NESTED.finditer(text):
        if block.start() < end:
            continue
        depth, at = 1, block.end()
        while at < len(text) and depth:
            quoted = QUOTED.match(text, at)
            depth += 0 if quoted else (text[at] == "{") - (text[at] == "}")
            at = quoted.end() if quoted else at + 1
        if not depth:
            end = at - 1
            yield block.end(), end


class _Body:
    """The text behind the colon of one rule."""

    def __init__(self, text: str) -> None:
        self.names: set[str] = set()
        self._tokens: list[re.Match[str]] = []
        at = 0
        while at < len(text):
            token = TOKEN.match(text, at)
            if token is None:
                break
            at = token.end()
            if token["space"] is None:
                self._tokens.append(token)
        self._rest = text[at:].lstrip()
        self._at = 0

    def needs(self) -> Needs:
        """Returns the needs of the whole rule; a directive may follow it."""
        found = self._choice()
        if self._at < len(self._tokens) or (self._rest and not self._rest.startswith(("%", "@"))):
            raise _NotUnderstoodError
        return found

    def _choice(self) -> Needs:
        found = self._sequence()
        while self._take("|"):
            found += self._sequence()
        return found[:MAX_NEEDS] if len(found) <= MAX_NEEDS else [set()]

    def _take(self, mark: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at][0] == mark
        self._at += found
        return found

    def _sequence(self) -> Needs:
        found: Needs = [set()]
        while self._at < len(self._tokens) and self._tokens[self._at][0] not in ("|", ")", "]"):
            if self._take("&") or self._take("~"):
                continue
            part = self._repeated(self._part())
            found = found if set() in part else [one | other for one in found for other in part]
            if len(found) > MAX_NEEDS:  # assumed to be finite
                return self._skipped()
        return found

    def _skipped(self) -> Needs:
        while self._at < len(self._tokens) and self._tokens[self._at][0] not in ("|", ")", "]"):
            self._repeated(self._part())
        return [set()]

    def _part(self) -> Needs:
        token = self._tokens[self._at]
        self._at += 1
        if token["atom"] is not None:
            return [set()]
        if token["name"] is not None:
            self.names.add(token["name"])
            return [{token["name"]}]
        if token[0] not in ("(", "["):
            raise _NotUnderstoodError
        inside = self._choice()
        if not self._take(")" if token[0] == "(" else "]"):
            raise _NotUnderstoodError
        return inside if token[0] == "(" else [set()]

    def _repeated(self, part: Needs) -> Needs:
        while self._at < len(self._tokens) and (times := self._tokens[self._at])["times"] is not None:
            self._at += 1
            least = times["low"] if times["low"] is not None else times["least"]
            if times[0] in ("*", "?") or (least is not None and int(least or 0) == 0):
                part = [set()]
        return part
