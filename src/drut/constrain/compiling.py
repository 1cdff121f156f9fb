"""A grammar that is being compiled."""

from __future__ import annotations

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunningError
from typing import TYPE_CHECKING, NamedTuple

from drut.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Compiling(NamedTuple):
    """The compilation of a grammar, for one of its users; each user has its own deadline."""

    future: Future[LLMatcher]
    deadline: float  # monotonic seconds
    seconds: float

    @property
    def done(self) -> bool:
        return self.future.done() or time.monotonic() >= self.deadline

    def result(self) -> LLMatcher:
        """Waits for the compiled matcher, which every user copies. Raises RequestError if the grammar is invalid or
        takes longer than the timeout."""
        try:
            return self.future.result(max(0.0, self.deadline - time.monotonic()))
        except StillRunningError:
            raise RequestError(f"the grammar takes longer than {self.seconds:g} s to compile") from None
        except RequestError as error:  # all waiters share this object
            raise RequestError(str(error)) from None
