"""A grammar on its way."""

from __future__ import annotations

import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunningError
from typing import TYPE_CHECKING, NamedTuple

from drut.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Compiling(NamedTuple):
    """Everyone who waits for the same grammar has one."""

    future: Future[LLMatcher]
    deadline: float  # monotonic seconds
    seconds: float

    @property
    def done(self) -> bool:
        return self.future.done() or time.monotonic() >= self.deadline

    def result(self) -> LLMatcher:
        """Waits for it; everyone makes a copy. RequestError where it is no good, or takes longer than it may."""
        try:
            return self.future.result(max(0.0, self.deadline - time.monotonic()))
        except StillRunningError:
            raise RequestError(f"the grammar takes longer than {self.seconds:g} s to compile") from None
        except RequestError as error:  # shared by all that wait
            raise RequestError(str(error)) from None
