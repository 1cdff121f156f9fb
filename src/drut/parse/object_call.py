"""Parses one call written as a JSON object: a name, and arguments under one of several keys, in either order."""

from __future__ import annotations

import json

from drut.parse.json_scan import JsonScan
from drut.parse.offer import CallEmitter, CallOutcome, OfferedTools

ARGUMENT_KEYS = ("arguments", "parameters")


class ObjectCall:
    """A parser of `{"name": ..., "arguments": {...}}` at the front of a text in pieces; other keys are ignored."""

    def __init__(self, offer: OfferedTools, index: int) -> None:
        self.emitter = CallEmitter(offer, index)
        self.outcome = CallOutcome.GOES_ON
        self._begun = False
        self._early = ""  # arguments that came before the name
        self._ended = False  # the arguments are complete
        self._streams = False  # the current value is the arguments, an object
        self._at = "open"  # the state; then "key", "keyname", "colon", "ahead", "value", "next"
        self._key = ""
        self._value = ""
        self._scan = JsonScan()

    @property
    def quoting(self) -> bool:
        """Whether the next text belongs to a string."""
        return self._at in ("keyname", "value") and self._scan.in_string

    def feed(self, text: str) -> int:
        """Consumes text of the call; returns the number of characters."""
        at = 0
        while at < len(text) and self.outcome is CallOutcome.GOES_ON:
            at = self._inside(text, at) if self._at in ("keyname", "value") else self._between(text, at)
        return at

    def _between(self, text: str, at: int) -> int:
        char = text[at]
        if char.isspace():
            return at + 1
        if self._at == "open" and char == "{":
            self._at = "key"
        elif self._at == "key" and char == '"':
            self._at, self._value, self._scan = "keyname", "", JsonScan()
            return at
        elif self._at == "colon" and char == ":":
            self._at = "ahead"
        elif self._at == "ahead":
            self._at, self._value, self._scan = "value", "", JsonScan()
            self._streams = char == "{" and self._key in ARGUMENT_KEYS and not self._ended
            return at
        elif self._at == "next" and char == ",":
            self._at = "key"
        elif self._at == "next" and char == "}":
            self._close()
        else:
            self.outcome = CallOutcome.BROKEN
            return at
        return at + 1

    def _inside(self, text: str, at: int) -> int:
        """Consumes a key or a value. Only arguments that are an object are emitted before they are complete."""
        end = self._scan.feed(text, at)
        read = self._scan.take()
        if self._at == "value" and self._streams:
            self._stream(read)
        else:
            self._value += read
        if self._scan.broken:
            self.outcome = CallOutcome.BROKEN
        elif self._scan.complete:
            if self._at == "keyname":
                self._key, self._at = json.loads(self._value), "colon"
            else:
                self._at = "next"
                self._take_value()
        return end

    def _stream(self, text: str) -> None:
        """Emits text of arguments, once the name is known."""
        if self._begun:
            self.emitter.more(text)
        else:
            self._early += text

    def _take_value(self) -> None:
        if self._key == "name" and not self._begun:
            if not (self._value.startswith('"') and self.emitter.begin(json.loads(self._value))):
                self.outcome = CallOutcome.BROKEN
                return
            self._begun = True
            self.emitter.more(self._early)
        elif self._key in ARGUMENT_KEYS and not self._ended:
            self._ended = True
            if not self._streams and (written := as_object(self._value)) is None:
                self.outcome = CallOutcome.BROKEN
            elif not self._streams:
                self._stream(written or "")

    def _close(self) -> None:
        if not self._begun:
            self.outcome = CallOutcome.BROKEN
            return
        if not self._ended:
            self.emitter.more("{}")
        self.outcome = CallOutcome.DONE


def as_object(value: str) -> str | None:
    """Returns arguments that were not written as an object: null, or an object in a string. None for other values."""
    if value.strip() == "null":
        return "{}"
    if not value.startswith('"'):
        return None
    text = json.loads(value)
    scan = JsonScan()
    rest = text[scan.feed(text) :]
    written = scan.take().strip()
    return written if scan.complete and written.startswith("{") and not rest.strip() else None
