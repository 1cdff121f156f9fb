"""The CPU time of other processes on this machine, from Linux's /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path


class OthersLoad:
    """Counts from its creation; `cpus()` is the mean number of CPUs that others used since then, including steal
    time."""

    def __init__(self, own: Collection[int]) -> None:
        """`own`: process ids that are not others, in addition to this process."""
        self.own = {os.getpid(), *own}
        self.start, self.ticks = time.perf_counter(), self._others()

    def cpus(self) -> float:
        ticks = self._others() - self.ticks
        return max(0.0, ticks / os.sysconf("SC_CLK_TCK") / (time.perf_counter() - self.start))

    def _others(self) -> int:
        user, nice, system, _idle, _wait, irq, softirq, steal = _numbers("/proc/stat", 1, 9)
        own = sum(sum(_numbers(f"/proc/{pid}/stat", 13, 15)) for pid in self.own)
        return user + nice + system + irq + softirq + steal - own


def _numbers(path: str, first: int, last: int) -> list[int]:
    """Returns fields [first, last) of the first line; a process name with spaces counts as one field."""
    line = Path(path).read_text().splitlines()[0]
    name_end = line.rfind(")")
    fields = ["", "", *line[name_end + 1 :].split()] if name_end >= 0 else line.split()
    return [int(field) for field in fields[first:last]]
