"""CPU time and memory of a process with all its descendants."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import psutil

from drut.errors import RequestError

SEARCH_EVERY = 5  # samples; finding descendants reads every process of the system
PSS_EVERY = 10  # samples; the kernel walks all pages of a process for it


@dataclass(frozen=True)
class ProcessUse:
    """The use of a process and its descendants over a run."""

    cpu_s: float
    cpus: float  # mean: CPU seconds per second
    peak_rss_bytes: int  # pages shared by several of them count for each
    peak_pss_bytes: int | None  # shared pages count proportionally; None if not readable
    processes: int  # maximum at a time


class ProcessTree:
    """Samples a process and its descendants."""

    def __init__(self, pid: int, without: int | None = None) -> None:
        """`without`: a descendant that is excluded with its own descendants. Raises RequestError if the process does
        not exist."""
        self._root = _process(pid)
        self._without = None if without is None else _process(without)
        self._members: list[psutil.Process] = []
        self._first = self._cpu_s = 0.0
        self._rss = self._pss = self._processes = self._samples = 0

    def sample(self) -> None:
        """Takes a sample; the last values of an ended process are kept."""
        if self._samples % SEARCH_EVERY == 0:
            self.search()
        if self._samples % PSS_EVERY == 0:
            self.sample_pss()
        cpu_s, rss, alive = 0.0, 0, 0
        for process in self._members:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                # The times of waited-for children are part of their parent's, so nothing is lost when a worker ends.
                cpu_s += times.user + times.system + times.children_user + times.children_system
                rss += process.memory_info().rss
                alive += 1
        if not self._samples:
            self._first = cpu_s
        self._cpu_s, self._rss = max(self._cpu_s, cpu_s), max(self._rss, rss)
        self._processes = max(self._processes, alive)
        self._samples += 1

    def search(self) -> None:
        """Finds the present descendants."""
        with contextlib.suppress(psutil.Error):
            members = [self._root, *self._root.children(recursive=True)]
            apart = self._apart()
            self._members = [process for process in members if process not in apart]

    def _apart(self) -> set[psutil.Process]:
        """Returns the excluded processes that exist."""
        with contextlib.suppress(psutil.Error):
            if self._without is not None:
                return {self._without, *self._without.children(recursive=True)}
        return set()

    def sample_pss(self) -> None:
        """Samples PSS, which takes longer and is sampled less often."""
        with contextlib.suppress(psutil.Error, AttributeError):
            self._pss = max(self._pss, sum(int(process.memory_full_info().pss) for process in self._members))

    def use(self, seconds: float) -> ProcessUse:
        """Returns the use over `seconds` from the first sample to the last."""
        cpu_s = self._cpu_s - self._first
        return ProcessUse(cpu_s, cpu_s / seconds if seconds else 0.0, self._rss, self._pss or None, self._processes)


def _process(pid: int) -> psutil.Process:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        raise RequestError(f"process {pid} does not exist") from None
