"""The offered tools, and how calls of them are emitted in a stream."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto

from drut.parse.deltas import CallArguments, CallBegins, Delta

SHORT_ID = string.ascii_letters + string.digits


def call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def short_id() -> str:
    """Returns nine letters and digits, the form that Mistral's templates expect."""
    return "".join(secrets.choice(SHORT_ID) for _ in range(9))


@dataclass(frozen=True)
class OfferedTools:
    """The offered tools, and when calls are emitted.

    `whole`: a call is emitted once it is complete, because a delta cannot be withdrawn. Without it, if a grammar
    guarantees the rest, arguments are emitted as they come.
    """

    names: Collection[str]
    whole: bool = True
    most: int | None = None  # maximum of calls of an output; further ones are content
    new_id: Callable[[], str] = call_id


class CallOutcome(Enum):
    GOES_ON = auto()
    DONE = auto()
    BROKEN = auto()


class CallEmitter:
    """Emits a call when its name is known and its arguments come, by the rules of an offer."""

    def __init__(self, offer: OfferedTools, index: int) -> None:
        self._offer, self._index = offer, index
        self._held: list[Delta] = []
        self.emitted = False  # a part of the call was emitted

    def begin(self, name: str) -> bool:
        """Begins the call; returns False for a tool that was not offered."""
        if name not in self._offer.names or (self._offer.most is not None and self._index >= self._offer.most):
            return False
        self._held.append(CallBegins(self._index, self._offer.new_id(), name))
        return True

    def more(self, text: str) -> None:
        if text:
            self._held.append(CallArguments(self._index, text))

    def take(self, *, done: bool) -> list[Delta]:
        """Returns the deltas that may be emitted now."""
        if self._offer.whole and not done:
            return []
        taken, self._held = self._held, []
        self.emitted = self.emitted or bool(taken)
        return taken
