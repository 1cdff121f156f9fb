"""Splits a period of time into named parts."""

from __future__ import annotations

import time


class Laps:
    """A stopwatch: each lap is the time since the previous one. Seconds of the monotonic clock."""

    def __init__(self, started: float | None = None) -> None:
        """`started`: the start of the first lap; None: now."""
        self._last = self.started = time.monotonic() if started is None else started
        self.parts: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Adds the time since the last lap to `name`."""
        now = time.monotonic()
        self.parts[name] = self.parts.get(name, 0.0) + now - self._last
        self._last = now

    @property
    def total_s(self) -> float:
        """Returns the time from the start to the last lap, which is the sum of the parts."""
        return self._last - self.started
