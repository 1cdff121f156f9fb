"""The CPUs of the whole machine, and what its host took from them."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class MachineUse:
    """Of all CPUs over a run; shares are from 0 to 1."""

    cpus: int
    busy_share: float  # neither idle nor waiting for disks
    max_busy_share: float  # between two samples
    steal_share: float | None  # the hypervisor ran something else; None where it is not told
    memory_bytes: int
    min_available_bytes: int


class Machine:
    """Samples the machine."""

    def __init__(self) -> None:
        self._first = self._last = psutil.cpu_times()
        self._max_busy = 0.0
        self._available = psutil.virtual_memory().available

    def sample(self) -> None:
        """One more."""
        now = psutil.cpu_times()
        self._max_busy = max(self._max_busy, busy_share(self._last, now))
        self._available = min(self._available, psutil.virtual_memory().available)
        self._last = now

    def use(self) -> MachineUse:
        """From the first sample to the last."""
        memory = psutil.virtual_memory().total
        busy = busy_share(self._first, self._last)
        return MachineUse(cpus=psutil.cpu_count() or 1, busy_share=busy, max_busy_share=max(busy, self._max_busy),
                          steal_share=steal_share(self._first, self._last), memory_bytes=memory,
                          min_available_bytes=self._available)


def _seconds(times: object, *names: str) -> float:
    return sum(getattr(times, name, 0.0) for name in names)


_ALL = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # guests are in user and nice


def busy_share(old: object, new: object) -> float:
    """Of the CPU time between two readings."""
    total = _seconds(new, *_ALL) - _seconds(old, *_ALL)
    idle = _seconds(new, "idle", "iowait") - _seconds(old, "idle", "iowait")
    return min(max(1.0 - idle / total, 0.0), 1.0) if total > 0 else 0.0


def steal_share(old: object, new: object) -> float | None:
    """Of the CPU time between two readings."""
    if not hasattr(new, "steal"):
        return None
    total = _seconds(new, *_ALL) - _seconds(old, *_ALL)
    return max(_seconds(new, "steal") - _seconds(old, "steal"), 0.0) / total if total > 0 else 0.0
