"""One call written as a JSON object: a name, and arguments under one of several keys, in either order."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto

from drut.parse.deltas import CallArguments, CallBegins, Delta
from drut.parse.json_scan import JsonScan

ARGUMENT_KEYS = ("arguments", "parameters")
SHORT_ID = string.ascii_letters + string.digits


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def short_id() -> str:
    """Nine letters and digits, as the templates of Mistral want them."""
    return "".join(secrets.choice(SHORT_ID) for _ in range(9))


@dataclass(frozen=True)
class Offer:
    """What may be called, and how calls are told.

    `whole`: a call is told once all of it has come, since what was told cannot be taken back. Without it, where a
    grammar vouches for the rest, arguments are told as they come.
    """

    names: Collection[str]
    whole: bool = True
    most: int | None = None  # calls of an answer; more are content
    new_id: Callable[[], str] = call_id


class Outcome(Enum):
    GOES_ON = auto()
    DONE = auto()
    BROKEN = auto()


class CallTeller:
    """Tells a call when its name is known and its arguments come, by the rules of an offer."""

    def __init__(self, offer: Offer, index: int) -> None:
        self._offer, self._index = offer, index
        self._held: list[Delta] = []
        self.told = False  # something of it went out

    def begin(self, name: str) -> bool:
        """False for a tool that was not offered."""
        if name not in self._offer.names or (self._offer.most is not None and self._index >= self._offer.most):
            return False
        self._held.append(CallBegins(self._index, self._offer.new_id(), name))
        return True

    def more(self, text: str) -> None:
        if text:
            self._held.append(CallArguments(self._index, text))

    def take(self, *, done: bool) -> list[Delta]:
        """What may be told now."""
        if self._offer.whole and not done:
            return []
        taken, self._held = self._held, []
        self.told = self.told or bool(taken)
        return taken


class ObjectCall:
    """Reads `{"name": ..., "arguments": {...}}` from the front of a text, a piece at a time; other keys are ignored."""

    def __init__(self, offer: Offer, index: int) -> None:
        self.teller = CallTeller(offer, index)
        self.outcome = Outcome.GOES_ON
        self._begun = False
        self._early = ""  # arguments that came before the name
        self._ended = False  # the arguments are all there
        self._streams = False  # the value under way is arguments, an object
        self._at = "open"  # then "key", "keyname", "colon", "ahead", "value", "next"
        self._key = ""
        self._value = ""
        self._scan = JsonScan()

    @property
    def quoting(self) -> bool:
        """Whether what comes next belongs to a string."""
        return self._at in ("keyname", "value") and self._scan.in_string

    def feed(self, text: str) -> int:
        """Takes what belongs to the call; returns how much that was."""
        at = 0
        while at < len(text) and self.outcome is Outcome.GOES_ON:
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
            self.outcome = Outcome.BROKEN
            return at
        return at + 1

    def _inside(self, text: str, at: int) -> int:
        """A key, or a value. Only arguments that are an object are told before all of them came."""
        end = self._scan.feed(text, at)
        read = self._scan.take()
        if self._at == "value" and self._streams:
            self._stream(read)
        else:
            self._value += read
        if self._scan.broken:
            self.outcome = Outcome.BROKEN
        elif self._scan.complete:
            if self._at == "keyname":
                self._key, self._at = json.loads(self._value), "colon"
            else:
                self._at = "next"
                self._take_value()
        return end

    def _stream(self, text: str) -> None:
        """Tells text of arguments, once the name is known."""
        if self._begun:
            self.teller.more(text)
        else:
            self._early += text

    def _take_value(self) -> None:
        if self._key == "name" and not self._begun:
            if not (self._value.startswith('"') and self.teller.begin(json.loads(self._value))):
                self.outcome = Outcome.BROKEN
                return
            self._begun = True
            self.teller.more(self._early)
        elif self._key in ARGUMENT_KEYS and not self._ended:
            self._ended = True
            if not self._streams and (written := as_object(self._value)) is None:
                self.outcome = Outcome.BROKEN
            elif not self._streams:
                self._stream(written or "")

    def _close(self) -> None:
        if not self._begun:
            self.outcome = Outcome.BROKEN
            return
        if not self._ended:
            self.teller.more("{}")
        self.outcome = Outcome.DONE


def as_object(value: str) -> str | None:
    """Arguments that were not written as an object: null, or an object in a string. None for all else."""
    if value.strip() == "null":
        return "{}"
    if not value.startswith('"'):
        return None
    text = json.loads(value)
    scan = JsonScan()
    rest = text[scan.feed(text) :]
    written = scan.take().strip()
    return written if scan.complete and written.startswith("{") and not rest.strip() else None


class CallList:
    """One call as an object, or several in an array."""

    def __init__(self, offer: Offer, index: int) -> None:
        self._offer, self._index = offer, index  # of the call under way, or the next one
        self.outcome = Outcome.GOES_ON
        self.untold = ""  # text that no call which went out has used
        self.deltas: list[Delta] = []
        self._call: ObjectCall | None = None
        self._array = False
        self._at = "start"  # then "item", "call", "next"

    @property
    def calls(self) -> int:
        """Calls of the answer that were told, one that has only begun among them."""
        return self._index + self.half_told

    @property
    def half_told(self) -> bool:
        """Whether something of a call went out that is not whole yet."""
        return self._call is not None and self._call.teller.told

    @property
    def quoting(self) -> bool:
        """Whether what comes next belongs to a string in a call."""
        return self._call is not None and self._call.quoting

    def feed(self, text: str) -> int:
        """Takes what belongs to the calls; returns how much that was."""
        at = 0
        while at < len(text) and self.outcome is Outcome.GOES_ON:
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
            self.outcome = Outcome.DONE
        elif not char.isspace():
            self.outcome = Outcome.BROKEN
            return at
        self.untold += char
        return at + 1

    def _item(self, text: str, at: int) -> int:
        call = self._call
        assert call is not None
        end = at + call.feed(text[at:])
        self.untold += text[at:end]
        done = call.outcome is Outcome.DONE
        self.deltas += call.teller.take(done=done)
        if call.teller.told:
            self.untold = ""
        if done:
            self._call, self._index, self._at = None, self._index + 1, "next"
            self.outcome = Outcome.GOES_ON if self._array else Outcome.DONE
        elif call.outcome is Outcome.BROKEN:
            self.outcome = Outcome.BROKEN
        return end


class NamedCall:
    """A call as a name and an object: `name{...}`, `name[ARGS]{...}` or `name[CALL_ID]id[ARGS]{...}`."""

    HEAD = re.compile(r"\s*([A-Za-z0-9_.-]+)(?:\[CALL_ID\][A-Za-z0-9_-]*)?(?:\[ARGS\])?\s*")
    MOST_HEAD = 256

    def __init__(self, offer: Offer, index: int) -> None:
        self._teller, self._index = CallTeller(offer, index), index
        self.outcome = Outcome.GOES_ON
        self.untold = ""
        self.deltas: list[Delta] = []
        self._scan: JsonScan | None = None

    @property
    def calls(self) -> int:
        """Calls of the answer that were told, one that has only begun among them."""
        return self._index + self._teller.told

    @property
    def half_told(self) -> bool:
        """Whether something of a call went out that is not whole yet."""
        return self._teller.told and self.outcome is not Outcome.DONE

    @property
    def quoting(self) -> bool:
        """Whether what comes next belongs to a string in a call."""
        return self._scan is not None and self._scan.in_string

    def feed(self, text: str) -> int:
        """Takes what belongs to the call; returns how much that was."""
        at = self._head(text) if self._scan is None else 0
        if self._scan is None or self.outcome is Outcome.BROKEN:
            return at
        end = self._scan.feed(text, at)
        self._teller.more(self._scan.take())
        self.untold += text[at:end]
        if self._scan.broken:
            self.outcome = Outcome.BROKEN
        elif self._scan.complete:
            self.outcome = Outcome.DONE
        self.deltas += self._teller.take(done=self._scan.complete)
        if self._teller.told:
            self.untold = ""
        return end

    def _head(self, text: str) -> int:
        """Up to the brace that opens the arguments."""
        brace = text.find("{")
        end = len(text) if brace < 0 else brace
        self.untold += text[:end]
        if brace < 0:
            self.outcome = Outcome.BROKEN if len(self.untold) > self.MOST_HEAD else Outcome.GOES_ON
        elif (found := self.HEAD.fullmatch(self.untold)) and self._teller.begin(found[1]):
            self._scan = JsonScan()
        else:
            self.outcome = Outcome.BROKEN
        return end
