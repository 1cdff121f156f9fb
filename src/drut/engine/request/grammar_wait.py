"""The blocker of a request whose grammar is being compiled."""

from __future__ import annotations

from collections.abc import Callable

from drut.constrain.grammar_matcher import GrammarMatcher
from drut.errors import DrutError


class GrammarWait:
    """Blocks a request until its grammar is compiled or has failed."""

    kind = "grammar"
    reason = "its grammar is being compiled"

    def __init__(self, guide: GrammarMatcher) -> None:
        self._guide = guide

    @property
    def ready(self) -> bool:
        return self._guide.ready

    def when_ready(self, wake: Callable[[], None]) -> None:
        self._guide.when_ready(wake)

    def resolve(self) -> DrutError | None:
        self._guide.open()
        return self._guide.failure
