"""Translates grammars from GBNF, llama.cpp's notation, to Lark's: `root ::= "a" [b-d]* ("e" | rest)`.

A rule that leads to no recursive rule becomes a terminal, one regular expression for the library; so does each run of
such parts in another rule. Source: llama.cpp, grammars/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from drut.constrain.endless import check_ends
from drut.constrain.limits import MAX_DEPTH, MAX_RULES
from drut.constrain.patterns import ANY, Ranges, class_of, complement
from drut.errors import RequestError

ESCAPES = {"n": 0x0A, "r": 0x0D, "t": 0x09}
CODES = {"x": 2, "u": 4, "U": 8}  # escape -> number of its hexadecimal digits
MAX_TIMES = 1_000_000


@dataclass
class GbnfNode:
    """A part of a rule. `terminal`: it contains no recursive rule."""

    kind: Literal["set", "name", "sequence", "choice", "repeat"]
    at: int  # position in the text
    parts: list[GbnfNode] = field(default_factory=list)
    ranges: Ranges = ()
    name: str = ""
    low: int = 0
    high: int | None = None


def to_lark(text: str, field_name: str = "grammar") -> str:
    """Returns the grammar in Lark's notation. Raises RequestError with line and column of an error."""
    reader = _GbnfReader(text, field_name)
    rules = reader.rules()
    if "root" not in rules:
        raise RequestError(f"{field_name}: there is no rule 'root'")
    uses = {name: _names(node) for name, (_, node) in rules.items()}
    check_ends(field_name, "root", uses, {name: _needs(node) for name, (_, node) in rules.items()},
               lambda name: reader.place(rules[name][0]))
    reached, waiting = set[str](), ["root"]
    while waiting:
        if (name := waiting.pop()) not in reached:
            reached.add(name)
            waiting += uses[name]
    kept = {name: place for name, place in rules.items() if name in reached}
    lines = {name: text.count("\n", 0, at) + 1 for name, (at, _) in kept.items()}
    return _LarkWriter({name: node for name, (_, node) in kept.items()}, lines).lark()


class _GbnfReader:
    """A recursive descent over one grammar."""

    def __init__(self, text: str, field_name: str) -> None:
        self._text, self._field, self._at, self._depth = text, field_name, 0, 0

    def place(self, at: int) -> str:
        """Returns a position as line and column, counted from 1."""
        line = self._text.count("\n", 0, at) + 1
        return f"line {line}, column {at - self._text.rfind(chr(10), 0, at)}"

    def rules(self) -> dict[str, tuple[int, GbnfNode]]:
        """Returns the rules by name, with their positions. Raises RequestError for a duplicate or a missing rule."""
        found: dict[str, tuple[int, GbnfNode]] = {}
        self._space(lines=True)
        while self._at < len(self._text):
            at, name = self._at, self._name()
            if name in found:
                raise self._error(f"the rule {name!r} is defined already, {self.place(found[name][0])}", at)
            self._space()
            if not self._take("::="):
                raise self._error("'::=' must follow the name of a rule")
            self._space(lines=True)
            found[name] = at, self._choice(nested=False)
            if len(found) > MAX_RULES:
                raise RequestError(f"{self._field}: more than {MAX_RULES} rules")
            if not self._line_end():
                raise self._error(f"{self._peek()!r} is not expected")
            self._space(lines=True)
        for _, node in found.values():
            for part in _all(node):
                if part.kind == "name" and part.name not in found:
                    raise self._error(f"there is no rule {part.name!r}", part.at)
        return found

    def _error(self, what: str, at: int | None = None) -> RequestError:
        return RequestError(f"{self._field}: {what} ({self.place(self._at if at is None else at)})")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _space(self, *, lines: bool = False) -> None:
        while (char := self._peek()) and (char in " \t\r" or char == "#" or (lines and char == "\n")):
            if char == "#":
                end = self._text.find("\n", self._at)
                self._at = end if end >= 0 else len(self._text)
            else:
                self._at += 1

    def _line_end(self) -> bool:
        self._space()
        return self._peek() in ("", "\n")

    def _name(self) -> str:
        start = self._at
        while (char := self._peek()) and char.isascii() and (char.isalnum() or char in "-_"):
            self._at += 1
        if self._at == start:
            raise self._error("the name of a rule is expected")
        return self._text[start : self._at]

    def _choice(self, *, nested: bool) -> GbnfNode:
        at, parts = self._at, [self._sequence(nested=nested)]
        while self._alternative(nested=nested):
            self._space(lines=True)
            parts.append(self._sequence(nested=nested))
        return parts[0] if len(parts) == 1 else GbnfNode("choice", at, parts)

    def _alternative(self, *, nested: bool) -> bool:
        """Consumes a bar, which may be at the beginning of the next line."""
        before = self._at
        self._space(lines=True)
        if self._take("|"):
            return True
        self._at = self._at if nested else before
        return False

    def _sequence(self, *, nested: bool) -> GbnfNode:
        at, parts = self._at, list[GbnfNode]()
        while (char := self._peek()) and char not in "|)" and (nested or char not in "\r\n#"):
            parts.append(self._repeated(self._part()))
            self._space(lines=nested)
        return parts[0] if len(parts) == 1 else GbnfNode("sequence", at, parts)

    def _part(self) -> GbnfNode:
        at = self._at
        if self._take('"'):
            return self._literal(at)
        if self._take("["):
            return GbnfNode("set", at, ranges=self._set(at))
        if self._take("."):
            return GbnfNode("set", at, ranges=ANY)
        if not self._take("("):
            if self._peek() in ("<", "!"):
                raise self._error("tokens in a grammar are not supported")
            return GbnfNode("name", at, name=self._name())
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"brackets nested more than {MAX_DEPTH} deep")
        self._space(lines=True)
        inside = self._choice(nested=True)
        self._space(lines=True)
        if not self._take(")"):
            raise self._error("this bracket is not closed", at)
        self._depth -= 1
        return inside

    def _literal(self, at: int) -> GbnfNode:
        parts = []
        while not self._take('"'):
            start = self._at
            point = self._point(at)
            parts.append(GbnfNode("set", start, ranges=((point, point),)))
        return parts[0] if len(parts) == 1 else GbnfNode("sequence", at, parts)

    def _set(self, at: int) -> Ranges:
        negated, ranges = self._take("^"), list[tuple[int, int]]()
        while not self._take("]"):
            start = self._at
            low = high = self._point(at)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._point(at)
            if high < low:
                raise self._error("a range out of order", start)
            ranges.append((low, high))
        found = complement(tuple(ranges)) if negated else tuple(ranges)
        if not found:
            raise self._error("a set of no characters", at)
        return found

    def _point(self, opened: int) -> int:
        """Returns the next character, plain or escaped, of the literal or set that was opened at `opened`."""
        char = self._peek()
        if char in ("", "\n"):
            raise self._error("this is not closed", opened)
        at, self._at = self._at, self._at + 1
        if char != "\\":
            return ord(char)
        char = self._peek()
        self._at += 1
        if char in ESCAPES:
            return ESCAPES[char]
        if (size := CODES.get(char)) is None:
            if not char or char.isalnum() or not char.isprintable():
                raise self._error(f"the escape \\{char} is not known", at)
            return ord(char)
        digits = self._text[self._at : self._at + size]
        self._at += size
        if len(digits) < size or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise self._error(f"\\{char} needs {size} hexadecimal digits", at)
        point = int(digits, 16)
        if point > ANY[0][1] or 0xD800 <= point < 0xE000:
            raise self._error("a code point that is not a character", at)
        return point

    def _repeated(self, node: GbnfNode) -> GbnfNode:
        while True:
            self._space()
            at = self._at
            if self._take("*"):
                node = GbnfNode("repeat", at, [node], low=0, high=None)
            elif self._take("+"):
                node = GbnfNode("repeat", at, [node], low=1, high=None)
            elif self._take("?"):
                node = GbnfNode("repeat", at, [node], low=0, high=1)
            elif self._take("{"):
                low, high = self._times(at)
                node = GbnfNode("repeat", at, [node], low=low, high=high)
            else:
                return node

    def _times(self, at: int) -> tuple[int, int | None]:
        inside, closed, _ = self._text[self._at :].partition("}")
        low, comma, high = (part.strip() for part in inside.partition(","))
        if not closed or not _number(low or ("0" if comma and high else "")) or (high and not _number(high)):
            raise self._error("a number of repetitions is expected, as in {2}, {2,} or {2,5}", at)
        self._at += len(inside) + 1
        least = int(low or 0)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > MAX_TIMES or (most is not None and most < least):
            raise self._error(f"numbers of repetitions must be in order, and at most {MAX_TIMES}", at)
        return least, most


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 9


def _all(node: GbnfNode) -> Iterator[GbnfNode]:
    stack = [node]
    while stack:
        part = stack.pop()
        yield part
        stack += part.parts


def _names(node: GbnfNode) -> set[str]:
    return {part.name for part in _all(node) if part.kind == "name"}


def _needs(node: GbnfNode) -> list[set[str]]:
    """Returns for each alternative the rules that it requires; nested alternatives are treated as separate rules."""
    if node.kind == "choice":
        return [need for part in node.parts for need in _needs(part)]
    if node.kind == "name":
        return [{node.name}]
    if node.kind == "set" or (node.kind == "repeat" and not node.low):
        return [set()]
    needs: list[set[str]] = [set()]
    for part in node.parts:
        more = _needs(part)
        if set() in more:
            continue
        needs = [one | other for one in needs for other in more]
        if len(needs) > 64:  # assumed to be finite
            return [set()]
    return needs


class _LarkWriter:
    """Writes a checked grammar in Lark, each rule in the line of the client's rule."""

    def __init__(self, rules: dict[str, GbnfNode], lines: dict[str, int]) -> None:
        self._rules, self._lines = rules, lines
        self._terminal = self._terminals()
        self._names = {name: f"{'T' if name in self._terminal else 'r'}_{i}" for i, name in enumerate(rules)}
        self._names["root"] = "start"
        self._hoisted: list[str] = []

    def lark(self) -> str:
        """Returns the grammar from `start` on; terminals that were hoisted out of rules come last."""
        written: list[str] = []
        for name, node in self._rules.items():
            written += [""] * (self._lines[name] - 1 - len(written))
            body = self._written(node, hoist=name not in self._terminal, outer=True)
            written.append(f"{self._names[name]}: {body}")
        return "\n".join([*written, *self._hoisted, ""])

    def _terminals(self) -> set[str]:
        """Returns the rules that lead to no recursive rule."""
        waiting = {name: _names(node) | ({name} if name == "root" else set()) for name, node in self._rules.items()}
        users: dict[str, list[str]] = {}
        for name, used in waiting.items():
            for other in used:
                users.setdefault(other, []).append(name)
        ready, found = [name for name, used in waiting.items() if not used], set[str]()
        while ready:
            name = ready.pop()
            found.add(name)
            for user in users.get(name, ()):
                waiting[user].discard(name)
                ready += [] if waiting[user] else [user]
        return found

    def _is_terminal(self, node: GbnfNode) -> bool:
        return all(part.kind != "name" or part.name in self._terminal for part in _all(node))

    def _written(self, node: GbnfNode, *, hoist: bool, outer: bool = False) -> str:
        """Returns the part in Lark; with `hoist`, terminals that are not rules become rules. `outer`: no brackets."""
        if hoist and self._is_terminal(node) and node.kind != "name":
            name = f"P_{len(self._hoisted)}"
            self._hoisted.append(f"{name}: {self._written(node, hoist=False, outer=True)}")
            return name
        match node.kind:
            case "set":
                return f"/{class_of(node.ranges)}/"
            case "name":
                return self._names[node.name]
            case "choice":
                text = " | ".join(self._written(part, hoist=hoist, outer=True) for part in node.parts)
            case "repeat":
                return self._times(node, hoist=hoist)
            case _:
                text = " ".join(self._written(part, hoist=hoist) for part in self._run(node.parts, hoist=hoist)) or '""'
        return text if outer else f"({text})"

    def _run(self, parts: list[GbnfNode], *, hoist: bool) -> list[GbnfNode]:
        """Returns the parts of a sequence, with adjacent terminals merged."""
        joined: list[GbnfNode] = []
        for terminal, some in groupby(parts, self._is_terminal):
            run = list(some)
            joined += [GbnfNode("sequence", run[0].at, run)] if hoist and terminal and len(run) > 1 else run
        return joined

    def _times(self, node: GbnfNode, *, hoist: bool) -> str:
        if node.high == 0:
            return '""'
        inside = self._written(node.parts[0], hoist=hoist)
        times = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.low, node.high))
        if times is None:
            times = f"{{{node.low},{'' if node.high is None else node.high}}}"
        return f"({inside}){times}"
