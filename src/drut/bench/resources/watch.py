"""Samples what a run takes of this machine, in a thread of its own that takes next to nothing itself."""

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
from drut.bench.resources.processes import ProcessUse, Tree
from drut.bench.resources.rapl import ROOT, Energy, Rapl
from drut.errors import UnsupportedError

Part = TypeVar("Part")


@dataclass(frozen=True)
class Resources:
    """What a run took. `unreadable` says why a part is missing."""

    seconds: float
    samples: int
    client: ProcessUse  # this process and its workers
    server: ProcessUse | None  # None where no process was named
    machine: MachineUse
    gpus: list[GpuUse] | None
    energy: list[Energy] | None  # of CPU packages and memory
    unreadable: list[str]
    sampling_cpus: float  # what the sampling itself took, in CPU seconds a second

    @property
    def others_cpus(self) -> float | None:
        """Mean number of CPUs that neither client nor server had, steal included; None where no server was named, which
        may run here all the same."""
        if self.server is None:
            return None
        return max(self.machine.busy_share * self.machine.cpus - self.client.cpus - self.server.cpus, 0.0)


class ResourceWatch:
    """Watches this machine, this process and, where its pid is given, a server, from `start` to `stop`."""

    def __init__(self, server_pid: int | None = None, every_s: float = 1.0, nvml: Any = None,
                 powercap: Path = ROOT) -> None:
        """Raises RequestError where there is no process of that id. `nvml` stands for the module `pynvml`."""
        self._every_s = every_s
        self._unreadable: list[str] = []
        self._client = Tree(os.getpid(), without=server_pid)  # which a command may have started
        self._server = None if server_pid is None else Tree(server_pid)
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
        """The first sample."""
        self._began = time.monotonic()
        self._sample()
        self._thread.start()

    def stop(self) -> Resources:
        """The last sample, and what all of them say."""
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

    def _trees(self) -> list[Tree]:
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
