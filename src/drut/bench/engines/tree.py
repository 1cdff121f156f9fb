"""All processes of an engine: suspends and resumes them, and measures their memory and CPU time."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import psutil


class Memory(msgspec.Struct, frozen=True):
    """The memory of all processes of an engine, in MB of 10^6 bytes. Resident pages that several processes share count
    for each; `pss_mb` counts them once, None if unknown. `peak_mb` is the sum of the peaks of the processes."""

    resident_mb: float
    peak_mb: float
    pss_mb: float | None = None


class Tree:
    """The descendants of a process, without itself."""

    def __init__(self, root: int) -> None:
        self._root, self._peak = root, 0.0

    def members(self) -> list[psutil.Process]:
        """Returns the present descendants."""
        try:
            return psutil.Process(self._root).children(recursive=True)
        except psutil.Error:
            return []

    def pids(self) -> set[int]:
        """Returns the process ids of the present descendants."""
        return {process.pid for process in self.members()}

    def suspend(self) -> None:
        """Suspends all descendants, including those that start meanwhile."""
        held: set[int] = set()
        while new := [process for process in self.members() if process.pid not in held]:
            for process in new:
                held.add(process.pid)
                with contextlib.suppress(psutil.Error):
                    process.suspend()

    def resume(self) -> None:
        """Resumes all descendants."""
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                process.resume()

    def memory(self) -> Memory:
        """Returns the present memory; the peak is the highest value seen by any call."""
        resident = peak = pss = 0.0
        whole = True
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                rss = process.memory_info().rss
                resident += rss
                peak += max(rss, _peak_bytes(process.pid))
                try:
                    pss += process.memory_full_info().pss
                except (psutil.Error, AttributeError):
                    whole = False
        self._peak = max(self._peak, peak)
        return Memory(resident / 1e6, self._peak / 1e6, pss / 1e6 if whole else None)

    def cpu_s(self) -> float:
        """Returns the CPU seconds, including those of ended processes."""
        seconds = 0.0
        for process in self.members():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(self._root).cpu_times()
            seconds += times.children_user + times.children_system
        return seconds


def _peak_bytes(pid: int) -> int:
    """Returns the kernel's high-water mark of a process; 0 if it is unknown."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
