"""Parses the calls behind one mark: an object, several in an array, or a name with an object."""

from __future__ import annotations

import re

from drut.parse.deltas import Delta
from drut.parse.json_scan import JsonScan
from drut.parse.object_call import ObjectCall
from drut.parse.offer import CallEmitter, CallOutcome, OfferedTools


class CallList:
    """One call as an object, or several in an array."""

    def __init__(self, offer: OfferedTools, index: int) -> None:
        self._offer, self._index = offer, index  # index of the current call, or the next one
        self.outcome = CallOutcome.GOES_ON
        self.pending = ""  # text that is not part of an emitted call
        self.deltas: list[Delta] = []
        self._call: ObjectCall | None = None
        self._array = False
        self._at = "start"  # the state; then "item", "call", "next"

    @property
    def calls(self) -> int:
        """The number of emitted calls of the output, including one that has only begun."""
        return self._index + self.half_emitted

    @property
    def half_emitted(self) -> bool:
        """Whether a part of a call was emitted that is not complete yet."""
        return self._call is not None and self._call.emitter.emitted

    @property
    def quoting(self) -> bool:
        """Whether the next text belongs to a string in a call."""
        return self._call is not None and self._call.quoting

    def feed(self, text: str) -> int:
        """Consumes text of the calls; returns the number of characters."""
        at = 0
        while at < len(text) and self.outcome is CallOutcome.GOES_ON:
            at = self._item(text, at) if self._call is not None else self._between(text, at)
        return at

    def _between(self, text: str, at: int) -> int:
        char = text[at]
        if self._at == "start" and char == "[":
            self._array, self._at = True, "item"
        elif self._at in ("start", "item") and char == "{":
            self._call = ObjectCall(self._offer, self._index)
            return at
        elif self._at == "next" and char == ",":
            self._at = "item"
        elif self._at == "next" and char == "]":
            self.outcome = CallOutcome.DONE
        elif not char.isspace():
            self.outcome = CallOutcome.BROKEN
            return at
        self.pending += char
        return at + 1

    def _item(self, text: str, at: int) -> int:
        call = self._call
        assert call is not None
        end = at + call.feed(text[at:])
        self.pending += text[at:end]
        done = call.outcome is CallOutcome.DONE
        self.deltas += call.emitter.take(done=done)
        if call.emitter.emitted:
            self.pending = ""
        if done:
            self._call, self._index, self._at = None, self._index + 1, "next"
            self.outcome = CallOutcome.GOES_ON if self._array else CallOutcome.DONE
        elif call.outcome is CallOutcome.BROKEN:
            self.outcome = CallOutcome.BROKEN
        return end


class NamedCall:
    """A call as a name and an object: `name{...}`, `name[ARGS]{...}` or `name[CALL_ID]id[ARGS]{...}`."""

    HEAD = re.compile(r"\s*([A-Za-z0-9_.-]+)(?:\[CALL_ID\][A-Za-z0-9_-]*)?(?:\[ARGS\])?\s*")
    MAX_HEAD = 256

    def __init__(self, offer: OfferedTools, index: int) -> None:
        self._emitter, self._index = CallEmitter(offer, index), index
        self.outcome = CallOutcome.GOES_ON
        self.pending = ""
        self.deltas: list[Delta] = []
        self._scan: JsonScan | None = None

    @property
    def calls(self) -> int:
        """The number of emitted calls of the output, including one that has only begun."""
        return self._index + self._emitter.emitted

    @property
    def half_emitted(self) -> bool:
        """Whether a part of a call was emitted that is not complete yet."""
        return self._emitter.emitted and self.outcome is not CallOutcome.DONE

    @property
    def quoting(self) -> bool:
        """Whether the next text belongs to a string in a call."""
        return self._scan is not None and self._scan.in_string

    def feed(self, text: str) -> int:
        """Consumes text of the call; returns the number of characters."""
        at = self._head(text) if self._scan is None else 0
        if self._scan is None or self.outcome is CallOutcome.BROKEN:
            return at
        end = self._scan.feed(text, at)
        self._emitter.more(self._scan.take())
        self.pending += text[at:end]
        if self._scan.broken:
            self.outcome = CallOutcome.BROKEN
        elif self._scan.complete:
            self.outcome = CallOutcome.DONE
        self.deltas += self._emitter.take(done=self._scan.complete)
        if self._emitter.emitted:
            self.pending = ""
        return end

    def _head(self, text: str) -> int:
        """Consumes text up to the brace that opens the arguments."""
        brace = text.find("{")
        end = len(text) if brace < 0 else brace
        self.pending += text[:end]
        if brace < 0:
            self.outcome = CallOutcome.BROKEN if len(self.pending) > self.MAX_HEAD else CallOutcome.GOES_ON
        elif (found := self.HEAD.fullmatch(self.pending)) and self._emitter.begin(found[1]):
            self._scan = JsonScan()
        else:
            self.outcome = CallOutcome.BROKEN
        return end
