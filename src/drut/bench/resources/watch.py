"""Samples the resources that a run uses on this machine, in a thread of its own with very little CPU time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from drut.bench.resources.gpus import Gpus, GpuUse
from drut.bench.resources.machine import Machine, MachineUse
from drut.bench.resources.processes import ProcessTree, ProcessUse
from drut.bench.resources.rapl import ROOT, Energy, Rapl
from drut.errors import UnsupportedError

Part = TypeVar("Part")


@dataclass(frozen=True)
class Resources:
    """The resources of a run. `unreadable` has the reasons for missing parts."""

    seconds: float
    samples: int
    client: ProcessUse  # this process and its workers
    server: ProcessUse | None  # None if no process was given
    machine: MachineUse
    gpus: list[GpuUse] | None
    energy: list[Energy] | None  # of CPU packages and memory
    unreadable: list[str]
    sampling_cpus: float  # CPU seconds per second of the sampling itself

    @property
    def others_cpus(self) -> float | None:
        """Returns the mean number of CPUs used by neither client nor server, including steal time; None if no server
        was given, because it may run on this machine all the same."""
        if self.server is None:
            return None
        return max(self.machine.busy_share * self.machine.cpus - self.client.cpus - self.server.cpus, 0.0)


class ResourceWatch:
    """Watches this machine, this process and, if its pid is given, a server, from `start` to `stop`."""

    def __init__(self, server_pid: int | None = None, every_s: float = 1.0, nvml: Any = None,
                 powercap: Path = ROOT) -> None:
        """Raises RequestError if no process has that id. `nvml` replaces the module `pynvml`."""
        self._every_s = every_s
        self._unreadable: list[str] = []
        self._client = ProcessTree(os.getpid(), without=server_pid)  # it may be a child of this process
        self._server = None if server_pid is None else ProcessTree(server_pid)
        self._machine = Machine()
        self._gpus = self._part(lambda: Gpus(nvml))
        self._rapl = self._part(lambda: Rapl(powercap))
        self._samples, self._cost_s = 0, 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="resources", daemon=True)

    def __enter__(self) -> ResourceWatch:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None,
                 ) -> None:
        self._stopping.set()

    def start(self) -> None:
        """Takes the first sample."""
        self._began = time.monotonic()
        self._sample()
        self._thread.start()

    def stop(self) -> Resources:
        """Takes the last sample, and returns the totals."""
        self._stopping.set()
        self._thread.join()
        for tree in self._trees():
            tree.search()
            tree.sample_pss()
        self._sample()
        seconds = time.monotonic() - self._began
        result = Resources(seconds=seconds, samples=self._samples, client=self._client.use(seconds),
                           server=self._server.use(seconds) if self._server else None, machine=self._machine.use(),
                           gpus=self._gpus.use() if self._gpus else None,
                           energy=self._rapl.use(seconds) if self._rapl else None, unreadable=self._unreadable,
                           sampling_cpus=self._cost_s / seconds if seconds else 0.0)
        if self._gpus:
            self._gpus.close()
        return result

    def _part(self, make: Callable[[], Part]) -> Part | None:
        try:
            return make()
        except UnsupportedError as error:
            self._unreadable.append(str(error))
            return None

    def _trees(self) -> list[ProcessTree]:
        return [tree for tree in (self._client, self._server) if tree]

    def _loop(self) -> None:
        due = self._began + self._every_s
        while not self._stopping.wait(max(due - time.monotonic(), 0.0)):
            began = time.thread_time()
            self._sample()
            self._cost_s += time.thread_time() - began
            due += self._every_s

    def _sample(self) -> None:
        for tree in self._trees():
            tree.sample()
        self._machine.sample()
        if self._gpus:
            self._gpus.sample()
        if self._rapl:
            try:
                self._rapl.sample()
            except (OSError, ValueError) as error:
                self._unreadable.append(f"RAPL: {error}")
                self._rapl = None
        self._samples += 1
