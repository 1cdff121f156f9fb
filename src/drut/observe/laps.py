"""Where a stretch of time went, in parts that add up to it."""

from __future__ import annotations

import time


class Laps:
    """A stopwatch: each lap is the time since the one before. Seconds of the monotonic clock."""

    def __init__(self, started: float | None = None) -> None:
        """`started`: when the first lap began; None: now."""
        self._last = self.started = time.monotonic() if started is None else started
        self.parts: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """What has passed since the last lap went into `name`."""
        now = time.monotonic()
        self.parts[name] = self.parts.get(name, 0.0) + now - self._last
        self._last = now

    @property
    def total_s(self) -> float:
        """From the start to the last lap: the sum of the parts."""
        return self._last - self.started
