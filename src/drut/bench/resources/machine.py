"""The CPU use of the whole machine, and the steal time of its host."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class MachineUse:
    """The use of all CPUs over a run; shares are from 0 to 1."""

    cpus: int
    busy_share: float  # neither idle nor waiting for disks
    max_busy_share: float  # between two samples
    steal_share: float | None  # the hypervisor ran something else; None if not reported
    memory_bytes: int
    min_available_bytes: int


class Machine:
    """Samples the machine."""

    def __init__(self) -> None:
        self._first = self._last = psutil.cpu_times()
        self._max_busy = 0.0
        self._available = psutil.virtual_memory().available

    def sample(self) -> None:
        """Takes a sample."""
        now = psutil.cpu_times()
        self._max_busy = max(self._max_busy, busy_share(self._last, now))
        self._available = min(self._available, psutil.virtual_memory().available)
        self._last = now

    def use(self) -> MachineUse:
        """Returns the use from the first sample to the last."""
        memory = psutil.virtual_memory().total
        busy = busy_share(self._first, self._last)
        return MachineUse(cpus=psutil.cpu_count() or 1, busy_share=busy, max_busy_share=max(busy, self._max_busy),
                          steal_share=steal_share(self._first, self._last), memory_bytes=memory,
                          min_available_bytes=self._available)


def _seconds(times: object, *names: str) -> float:
    return sum(getattr(times, name, 0.0) for name in names)


# time of guests is part of user and nice
_ALL = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def busy_share(old: object, new: object) -> float:
    """Returns the busy share of the CPU time between two readings."""
    total = _seconds(new, *_ALL) - _seconds(old, *_ALL)
    idle = _seconds(new, "idle", "iowait") - _seconds(old, "idle", "iowait")
    return min(max(1.0 - idle / total, 0.0), 1.0) if total > 0 else 0.0


def steal_share(old: object, new: object) -> float | None:
    """Returns the steal share of the CPU time between two readings."""
    if not hasattr(new, "steal"):
        return None
    total = _seconds(new, *_ALL) - _seconds(old, *_ALL)
    return max(_seconds(new, "steal") - _seconds(old, "steal"), 0.0) / total if total > 0 else 0.0
