"""Translates patterns of JSON schemas, regular expressions of ECMA-262, to the grammar library's notation.

The library reads Rust's notation, in which some characters have another meaning (`&&` in a class, `(?i)`, `\\z`, `\\s`,
`.`). So a pattern is parsed and written again, with every class as explicit ranges; syntax without a counterpart is
refused by name. Source: ECMA-262, 22.2 (with the flag `u`), and JSON Schema 2020-12, core 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drut.constrain.limits import MAX_DEPTH, MAX_REGEX_BYTES, check_text
from drut.errors import RequestError

Ranges = tuple[tuple[int, int], ...]
LAST = 0x10FFFF
ANY: Ranges = ((0, LAST),)
DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = ((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029),
                 (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF))
LINES: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
MAX_REPEATS = 100_000
SEARCH = r"[\x{0}-\x{10ffff}]*"  # any text before and after a match


def complement(ranges: Ranges) -> Ranges:
    """Returns all code points that are not in `ranges`."""
    made, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            made.append((start, low - 1))
        start = max(start, high + 1)
    return (*made, (start, LAST)) if start <= LAST else tuple(made)


def translated(pattern: str) -> str:
    """Returns a library pattern that matches, as a whole, each string that contains a match of `pattern`.

    Raises RequestError, with the position, for unsupported syntax.
    """
    check_text("pattern", pattern, MAX_REGEX_BYTES)
    return f"^(?:{'|'.join(map(_whole, _PatternReader(pattern).read()))})$"


@dataclass(frozen=True)
class _Sequence:
    """One alternative: `text` in the library's notation, and whether it is anchored at the beginning and at the end.

    `optional`: whether it is a repetition from zero times on.
    """

    text: str
    starts: bool = False
    ends: bool = False
    optional: bool = False


def _whole(found: _Sequence) -> str:
    return f"{'' if found.starts else SEARCH}{found.text}{'' if found.ends else SEARCH}"


def class_of(ranges: Ranges) -> str:
    """Returns a class of these code points in the library's notation, which has no empty classes."""
    if not ranges:
        return r"[^\x{0}-\x{10ffff}]"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _point(ranges[0][0])
    return "[" + "".join(f"{_point(low)}-{_point(high)}" for low, high in map(_without_surrogates, ranges)) + "]"


def _point(point: int) -> str:
    return chr(point) if chr(point).isascii() and chr(point).isalnum() else f"\\x{{{point:x}}}"


def _without_surrogates(ends: tuple[int, int]) -> tuple[int, int]:
    """Returns the ends of a range moved to characters; a range has at least one."""
    low, high = ends
    return 0xE000 if 0xD800 <= low < 0xE000 else low, 0xD7FF if 0xD800 <= high < 0xE000 else high


class _PatternReader:
    """A recursive descent over one pattern."""

    def __init__(self, pattern: str) -> None:
        self._text, self._at, self._depth = pattern, 0, 0

    def read(self) -> list[_Sequence]:
        found = self._alternatives()
        if self._at < len(self._text):
            raise self._error("a bracket that is not opened")
        return found

    def _error(self, what: str) -> RequestError:
        return RequestError(f"pattern {self._text[:60]!r}: {what} at position {self._at}")

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _alternatives(self) -> list[_Sequence]:
        found = self._sequence()
        while self._take("|"):
            found += self._sequence()
        return found

    def _sequence(self) -> list[_Sequence]:
        """Returns the alternatives of one sequence: more than one if a group with anchors is at its edge."""
        parts: list[list[_Sequence]] = []
        while self._peek() not in ("", "|", ")"):
            if self._take("^"):
                parts.append([_Sequence("", starts=True)])
            elif self._take("$"):
                parts.append([_Sequence("", ends=True)])
            else:
                parts.append(self._repeated(self._atom()))
        # Any text may surround a match; the library derives `.*` next to that at a far higher cost than without it.
        while not self._depth and parts and parts[0][0].optional:
            del parts[0]
        while not self._depth and parts and parts[-1][0].optional:
            del parts[-1]
        return self._joined(parts)

    def _joined(self, parts: list[list[_Sequence]]) -> list[_Sequence]:
        made = [_Sequence("")]
        for part in parts:
            plain = not any(one.starts or one.ends for one in part)
            made = [self._after(one, other) for one in made for other in ([_grouped(part)] if plain else part)]
            if len(made) > 64:
                raise self._error("too many alternatives with anchors")
        return made

    def _after(self, one: _Sequence, other: _Sequence) -> _Sequence:
        if (other.starts and one.text) or (one.ends and other.text):
            raise self._error("an anchor inside a sequence is not supported,")
        return _Sequence(one.text + other.text, one.starts or other.starts, one.ends or other.ends)

    def _atom(self) -> list[_Sequence]:
        if self._take("("):
            return self._group()
        if self._take("["):
            return [_Sequence(class_of(self._members()))]
        if self._take("."):
            return [_Sequence(class_of(complement(LINES)))]
        if self._take("\\"):
            return [_Sequence(self._escape())]
        char = self._peek()
        if char in "*+?":
            raise self._error(f"{char!r} with nothing to repeat")
        self._at += 1
        return [_Sequence(class_of(((ord(char), ord(char)),)))]

    def _group(self) -> list[_Sequence]:
        if self._take("?"):
            for mark, name in (("=", "look-ahead"), ("!", "look-ahead"), ("<=", "look-behind"), ("<!", "look-behind")):
                if self._take(mark):
                    raise self._error(f"{name} is not supported,")
            if self._take("<"):
                name, _, rest = self._text[self._at :].partition(">")
                if not name.isidentifier() or len(rest) == len(self._text) - self._at:
                    raise self._error("a group's name")
                self._at += len(name) + 1
            elif not self._take(":"):
                raise self._error(f"the group (?{self._peek()} is not supported,")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"groups nested more than {MAX_DEPTH} deep")
        found = self._alternatives()
        if not self._take(")"):
            raise self._error("a group that is not closed")
        self._depth -= 1
        return found

    def _repeated(self, atom: list[_Sequence]) -> list[_Sequence]:
        times = self._times()
        if times is None:
            return atom
        if any(one.starts or one.ends for one in atom):
            raise self._error("an anchor that is repeated is not supported,")
        self._take("?")  # lazy and greedy repetitions match the same strings
        if self._peek() in ("*", "+", "?"):
            raise self._error(f"{self._peek()!r} with nothing to repeat")
        return [_Sequence(f"(?:{_grouped(atom).text}){times}", optional=times[0] in "*?" or times.startswith("{0"))]

    def _times(self) -> str | None:
        for mark in "*+?":
            if self._take(mark):
                return mark
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        low, comma, high = self._text[self._at + 1 : end].partition(",")
        if not low.isdecimal() or not low.isascii() or (high and not (high.isdecimal() and high.isascii())):
            return None  # other braces are literal characters
        if max(len(low), len(high)) > 6 or int(low) > MAX_REPEATS or int(high or 0) > MAX_REPEATS:
            raise self._error(f"more than {MAX_REPEATS} repetitions")
        if high and int(high) < int(low):
            raise self._error("numbers of repetitions out of order")
        self._at = end + 1
        return f"{{{int(low)}{comma}{int(high) if high else ''}}}"

    def _escape(self) -> str:
        char = self._peek()
        if char in ("b", "B"):
            raise self._error(f"\\{char} is not supported,")
        if char in ("k", "") or char in "123456789":
            raise self._error("a backreference is not supported," if char else "a backslash at the end")
        kind, name = self._property()
        return name if kind == "property" else class_of(self._escaped())

    def _property(self) -> tuple[Literal["property", ""], str]:
        if self._peek() not in ("p", "P") or self._peek(2)[1:] != "{":
            return "", ""
        name = self._text[self._at + 2 :].partition("}")[0]
        if not name.replace("_", "").replace("=", "").isalnum() or not name.isascii():
            raise self._error("a Unicode property")
        made = f"\\{self._peek()}{{{name}}}"
        self._at += len(name) + 3
        return "property", made

    def _escaped(self) -> Ranges:
        """Returns the code points of a backslash with the next characters."""
        char = self._peek()
        self._at += 1
        if (known := CLASSES.get(char.lower())) is not None:
            return known if char.islower() else complement(known)
        if char == "0" and self._peek().isdecimal():
            raise self._error("an octal escape is not supported,")
        if char in CONTROLS:
            return ((CONTROLS[char], CONTROLS[char]),)
        if char == "c" and self._peek().isascii() and self._peek().isalpha():
            self._at += 1
            point = ord(self._text[self._at - 1]) % 32
        elif char in ("x", "u"):
            point = self._code_point(char)
        elif char.isascii() and char.isalnum():
            raise self._error(f"the escape \\{char} is not known,")
        else:
            point = ord(char)
        return ((point, point),)

    def _code_point(self, kind: str) -> int:
        if kind == "u" and self._take("{"):
            digits, _, _ = self._text[self._at :].partition("}")
            self._at += len(digits) + 1
            point = self._hex(digits, len(digits))
        else:
            size = 2 if kind == "x" else 4
            point = self._hex(self._peek(size), size)
            self._at += size
        if 0xD800 <= point < 0xDC00 and self._peek(2) == "\\u":
            low = self._hex(self._text[self._at + 2 : self._at + 6], 4)
            if 0xDC00 <= low < 0xE000:
                self._at += 6
                return 0x10000 + ((point - 0xD800) << 10) + low - 0xDC00
        if point > LAST or 0xD800 <= point < 0xE000:
            raise self._error("a code point that is not a character")
        return point

    def _hex(self, digits: str, size: int) -> int:
        if len(digits) != size or not 0 < size <= 6 or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise self._error("an escape without its hexadecimal digits")
        return int(digits, 16)

    def _members(self) -> Ranges:
        """Returns the members of a class whose opening bracket was consumed."""
        negated, ranges = self._take("^"), list[tuple[int, int]]()
        while not self._take("]"):
            low = self._member()
            if self._peek() == "-" and self._peek(2)[1:] not in ("]", ""):
                self._at += 1
                high = self._member()
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise self._error("a range between classes")
                if low[0][0] > high[0][0]:
                    raise self._error("a range out of order")
                low = ((low[0][0], high[0][0]),)
            ranges += low
        return complement(tuple(ranges)) if negated else tuple(ranges)

    def _member(self) -> Ranges:
        if self._peek() == "":
            raise self._error("a class that is not closed")
        if not self._take("\\"):
            self._at += 1
            return ((ord(self._text[self._at - 1]),) * 2,)
        if self._take("b"):
            return ((0x08, 0x08),)
        if self._peek() in ("p", "P", ""):
            raise self._error("a Unicode property in a class is not supported,")
        return self._escaped()


def _grouped(found: list[_Sequence]) -> _Sequence:
    if len(found) == 1:
        return found[0]
    return _Sequence(f"(?:{'|'.join(one.text for one in found)})")
