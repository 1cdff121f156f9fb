"""CPU time and memory of a process with all its descendants."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psutil

from drut.errors import RequestError

SEARCH_EVERY = 5  # samples; to find descendants the system looks at every process there is
PSS_EVERY = 10  # samples; the kernel walks all pages of a process for it


@dataclass(frozen=True)
class ProcessUse:
    """Of a process and its descendants over a run."""

    cpu_s: float
    cpus: float  # mean: CPU seconds a second
    peak_rss_bytes: int  # pages that several of them share count for each
    peak_pss_bytes: int | None  # shared pages count in part; None where it may not be read
    processes: int  # the most at once


class Tree:
    """Samples a process and its descendants."""

    def __init__(self, pid: int, without: int | None = None) -> None:
        """`without`: a descendant that does not count, nor its own. Raises RequestError where there is no such
        process."""
        self._root = _process(pid)
        self._without = None if without is None else _process(without)
        self._members: list[psutil.Process] = []
        self._first = self._cpu_s = 0.0
        self._rss = self._pss = self._processes = self._samples = 0

    def sample(self) -> None:
        """One more; a process that is gone keeps what was seen of it."""
        if self._samples % SEARCH_EVERY == 0:
            self.search()
        if self._samples % PSS_EVERY == 0:
            self.sample_pss()
        cpu_s, rss, alive = 0.0, 0, 0
        for process in self._members:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                # What a parent waited for is in its children's times, so nothing is lost when a worker ends.
                cpu_s += times.user + times.system + times.children_user + times.children_system
                rss += process.memory_info().rss
                alive += 1
        if not self._samples:
            self._first = cpu_s
        self._cpu_s, self._rss = max(self._cpu_s, cpu_s), max(self._rss, rss)
        self._processes = max(self._processes, alive)
        self._samples += 1

    def search(self) -> None:
        """Find the descendants there are now."""
        with contextlib.suppress(psutil.Error):
            members = [self._root, *self._root.children(recursive=True)]
            apart = self._apart()
            self._members = [process for process in members if process not in apart]

    def _apart(self) -> set[psutil.Process]:
        """What does not count, as far as it is there."""
        with contextlib.suppress(psutil.Error):
            if self._without is not None:
                return {self._without, *self._without.children(recursive=True)}
        return set()

    def sample_pss(self) -> None:
        """What takes longer, and is sampled less often."""
        with contextlib.suppress(psutil.Error, AttributeError):
            self._pss = max(self._pss, sum(int(process.memory_full_info().pss) for process in self._members))

    def use(self, seconds: float) -> ProcessUse:
        """Over `seconds` from the first sample to the last."""
        cpu_s = self._cpu_s - self._first
        return ProcessUse(cpu_s, cpu_s / seconds if seconds else 0.0, self._rss, self._pss or None, self._processes)


def _process(pid: int) -> psutil.Process:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        raise RequestError(f"there is no process {pid}") from None
