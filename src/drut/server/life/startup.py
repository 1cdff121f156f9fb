"""The parts of the time between the start of the process and readiness."""

from __future__ import annotations

import os
import time
from pathlib import Path

from drut.engine.service.messages import EngineReady
from drut.observe.laps import Laps


def process_age_s() -> float:
    """Returns seconds since the start of this process, to a clock tick (10 ms); 0 if the system does not report it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc(5); the first two are cut off
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, IndexError):
        return 0.0


class Startup:
    """Laps since the start of the process; the parts add up to the wall time."""

    def __init__(self) -> None:
        self.laps = Laps(time.monotonic() - process_age_s())
        self.laps.lap("python and imports")

    def engine(self, ready: EngineReady) -> None:
        """Adds the parts that the engine has measured of its load; the rest of the lap is "engine start"."""
        self.laps.lap("engine start")
        parts = self.laps.parts
        parts["engine start"] -= ready.load_s
        for name, seconds in ready.parts.items():
            parts[name] = parts.get(name, 0.0) + seconds

    def lap(self, name: str) -> None:
        """Adds the time since the last lap to the part `name`."""
        self.laps.lap(name)

    def __str__(self) -> str:
        """Returns one line: the total and its parts, in order of time."""
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in self.laps.parts.items())
        return f"ready after {self.laps.total_s:.2f} s: {parts}"
