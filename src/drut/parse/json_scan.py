"""Scans one JSON value in a stream of text: finds its end, or the position where it is not JSON."""

from __future__ import annotations

import json
import re

MAX_DEPTH = 64  # maximum of nested arrays and objects
_SPACE = " \t\n\r"
_PLAIN = re.compile(r'[^"\\]+')
_CONTROL = re.compile(r"[\x00-\x1f]")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ATOM = re.compile(r"[-+.0-9A-Za-z]+")
_LITERALS = ("true", "false", "null")


class JsonScan:
    """A scanner of one value. `complete`: the value has ended; `broken`: the text is not JSON.

    A number or a literal is complete only if other text follows it. Control characters in a string, such as line ends
    of code, are read as if they were escaped.
    """

    def __init__(self) -> None:
        self.complete = self.broken = False
        self._open: list[str] = []  # the closing brackets of open arrays and objects
        self._want = "value"  # or "first": a value or the end; "key", "firstkey", "colon", "next"; "string", "atom"
        self._is_key = False
        self._escape = ""  # a beginning of an escape in a string
        self._atom = ""
        self._read: list[str] = []

    @property
    def in_string(self) -> bool:
        """Whether the next text belongs to a string."""
        return self._want == "string"

    def take(self) -> str:
        """Returns the text read since the last call, as JSON."""
        read, self._read = "".join(self._read), []
        return read

    def feed(self, text: str, at: int = 0) -> int:
        """Reads from `at` on; returns the position of the end: of the text, behind the value, or of an error."""
        while at < len(text) and not (self.complete or self.broken):
            start, inside = at, self.in_string
            at = self._string(text, at) if inside else self._outside(text, at)
            read = text[start:at]
            self._read.append(_CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], read) if inside else read)
        return at

    def _outside(self, text: str, at: int) -> int:
        char = text[at]
        if self._want == "atom":
            if found := _ATOM.match(text, at):
                self._atom += found[0]
                return found.end()
            self._end_atom()
            return at
        if char in _SPACE:
            return at + 1
        if char == '"' and self._want in ("value", "first", "key", "firstkey"):
            self._is_key = self._want in ("key", "firstkey")
            self._want = "string"
        elif char == ":" and self._want == "colon":
            self._want = "value"
        elif char == "," and self._want == "next":
            self._want = "key" if self._open[-1] == "}" else "value"
        elif self._open and char == self._open[-1] and self._want in ("next", "first", "firstkey"):
            self._open.pop()
            self._end_value()
        elif char in "{[" and self._want in ("value", "first") and len(self._open) < MAX_DEPTH:
            self._open.append("}" if char == "{" else "]")
            self._want = "firstkey" if char == "{" else "first"
        elif self._want in ("value", "first") and _ATOM.match(char):
            self._want = "atom"
            return at
        else:
            self.broken = True
            return at
        return at + 1

    def _string(self, text: str, at: int) -> int:
        char = text[at]
        if self._escape:
            self._escape += char
            valid = char in "0123456789abcdefABCDEF" if len(self._escape) > 2 else char in 'u"\\/bfnrt'
            self.broken = not valid
            if self._escape[1] != "u" or len(self._escape) == 6:
                self._escape = ""
        elif char == "\\":
            self._escape = char
        elif char == '"':
            if self._is_key:
                self._want = "colon"
            else:
                self._end_value()
        elif found := _PLAIN.match(text, at):
            return found.end()
        return at if self.broken else at + 1

    def _end_atom(self) -> None:
        if self._atom in _LITERALS or _NUMBER.fullmatch(self._atom):
            self._end_value()
        else:
            self.broken = True
        self._atom = ""

    def _end_value(self) -> None:
        self._want = "next"
        self.complete = not self._open
