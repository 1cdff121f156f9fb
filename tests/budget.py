"""Seconds that tests take, counted per folder and held to `budget.toml` at the end of a run."""

from __future__ import annotations

import os
import sys
import time
import tomllib
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

FILE = Path(__file__).with_suffix(".toml")
REFERENCE_S = 0.0037  # CPU seconds of `work` on the machine that the budgets are for
PACE_EVERY_S = 5.0
CLOCK_HZ = os.sysconf("SC_CLK_TCK")


def work() -> int:
    """A fixed piece of work for one CPU, of a kind that tests do much of."""
    seen: dict[int, int] = {}
    for i in range(60_000):
        seen[i % 977] = i * 3
    return sum(sorted(seen.values()))


def pace() -> float:
    """How many times longer than on the machine of the budgets a CPU takes now, at least 1."""
    taken = []
    for _ in range(3):
        begun = time.thread_time()
        work()
        taken.append(time.thread_time() - begun)
    return max(1.0, min(taken) / REFERENCE_S)


@dataclass(frozen=True)
class Clocks:
    """Seconds so far: of the clock, of all CPUs for this process and its ended children, of the main thread on a CPU,
    of the main thread in wait for one, of all CPUs without work, and of all CPUs for children that still run."""

    wall: float
    cpu: float
    main: float
    queued: float
    free: float
    children: float = 0.0

    @classmethod
    def read(cls) -> Clocks:
        machine = psutil.cpu_times()
        free = machine.idle + getattr(machine, "iowait", 0.0)
        return cls(time.monotonic(), sum(os.times()[:4]), time.thread_time(), _queued(), free, _running(os.getpid()))

    def __sub__(self, other: Clocks) -> Clocks:
        return Clocks(*(mine - theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def idle(self) -> float:
        """Seconds in which the main thread neither ran nor was kept from it, less what others computed for it. At
        most those in which a CPU had no work: on a busy machine, what a test waits for may be waiting itself.

        A child that ends between two readings moves its earlier seconds from `children` to `cpu`: their sum is right.
        """
        others = self.cpu + self.children - self.main
        waited = self.wall - self.main - self.queued - max(0.0, others)
        return max(0.0, min(waited, self.free))


def _queued() -> float:
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _running(pid: int) -> float:
    """CPU seconds of the processes below `pid` that still run."""
    seconds = 0.0
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        below = [child for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return 0.0
    for child in map(int, below):
        try:
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        seconds += (int(fields[11]) + int(fields[12])) / CLOCK_HZ + _running(child)  # utime and stime
    return seconds


@dataclass
class Spent:
    """Of the tests of a folder: CPU seconds at the budgets' pace, idle seconds, CPU seconds as they were."""

    cpu: float = 0.0
    idle: float = 0.0
    raw: float = 0.0

    def add(self, other: Spent) -> None:
        self.cpu, self.idle, self.raw = self.cpu + other.cpu, self.idle + other.idle, self.raw + other.raw

    @property
    def seconds(self) -> float:
        return self.cpu + self.idle


@dataclass
class Budget:
    """What `budget.toml` grants: seconds of each folder, idle seconds of all, seconds of each kind of run."""

    folders: Mapping[str, float]
    idle: float
    runs: Mapping[str, float]

    @classmethod
    def load(cls, path: Path = FILE) -> Budget:
        data = tomllib.loads(path.read_text())
        return cls(data["folders"], data["idle"], data["runs"])

    def faults(self, spent: Mapping[str, Spent]) -> Iterator[str]:
        """A line for each folder over its budget or without one, and for the idle seconds of all."""
        for folder, took in sorted(spent.items()):
            if folder not in self.folders:
                yield f"{folder} has no budget in tests/{FILE.name}"
            elif took.seconds > self.folders[folder]:
                yield (f"{folder} took {took.seconds:.0f} s of {self.folders[folder]:.0f} "
                       f"({took.cpu:.0f} s of CPU, {took.idle:.0f} s idle)")
        idle = sum(took.idle for took in spent.values())
        if idle > self.idle:
            yield f"the tests were idle for {idle:.0f} s of {self.idle:.0f}"

    def run_fault(self, kind: str, seconds: float) -> str | None:
        if seconds > self.runs[kind]:
            return f"{kind} took {seconds:.0f} s of {self.runs[kind]:.0f}"
        return None


def folder_of(nodeid: str, files: Container[str] = ()) -> str:
    """What a test draws on: its file where that is one of `files`, else `tests` or the folder directly in it."""
    file = nodeid.split("::")[0]
    return file if file in files else "/".join(file.split("/")[:-1][:2])


class Meter:
    """Counts what each test takes, with its fixtures, in a process that runs tests."""

    def __init__(self, budget: Budget) -> None:
        self.spent: dict[str, Spent] = {}
        self._budget = budget
        self._pace, self._paced = pace(), time.monotonic()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if time.monotonic() > self._paced + PACE_EVERY_S:
            self._pace, self._paced = pace(), time.monotonic()
        before = Clocks.read()
        result = yield
        took = Clocks.read() - before
        spent = self.spent.setdefault(folder_of(item.nodeid, self._budget.folders), Spent())
        spent.add(Spent(took.cpu / self._pace, took.idle, took.cpu))
        return result


class WorkerMeter(Meter):
    """Reports to the process that started this one."""

    def __init__(self, budget: Budget, output: dict[str, Any]) -> None:
        super().__init__(budget)
        self._output = output

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        self._output["spent"] = {folder: asdict(spent) for folder, spent in self.spent.items()}
        self._output["cpu"] = sum(os.times()[:4])


@dataclass
class Judge:
    """Fails a run that is over its budget. `kind` names the budget of the whole run, if it has one."""

    budget: Budget
    meter: Meter
    kind: str | None = None
    workers_cpu: float = 0.0
    begun: float = field(default_factory=time.monotonic)
    machine: float = field(default_factory=lambda: _machine_cpu())
    line: str = ""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", None) or {}  # a worker that crashed leaves none
        for folder, spent in output.get("spent", {}).items():
            self.meter.spent.setdefault(folder, Spent()).add(Spent(**spent))
        self.workers_cpu += output.get("cpu", 0.0)

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        wall, spent = time.monotonic() - self.begun, self.meter.spent
        total = Spent()
        for each in spent.values():
            total.add(each)
        # What other programs, or the host, took of the CPUs this run could not have; it is not held against it.
        ours = sum(os.times()[:4]) if not self.workers_cpu else sum(os.times()[:2]) + self.workers_cpu
        foreign = max(0.0, _machine_cpu() - self.machine - ours) / (os.cpu_count() or 1)
        slower = total.raw / total.cpu if total.cpu else 1.0
        alone = (wall - foreign) / slower
        faults = list(self.budget.faults(spent))
        if self.kind and (fault := self.budget.run_fault(self.kind, alone)):
            faults.append(fault)
        shares = ", ".join(f"{folder.removeprefix('tests/')} {s.cpu:.0f}+{s.idle:.0f}" for folder, s in
                           sorted(spent.items(), key=lambda item: -item[1].seconds) if s.seconds >= 1)
        self.line = (f"seconds of CPU + idle: {shares or 'none'}; in all {total.cpu:.0f}+{total.idle:.0f}, "
                     f"{alone:.0f} of the clock at the budgets' pace ({slower:.2f} times that of this machine)")
        for fault in faults:
            _fail(session, fault)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.kind:
            terminalreporter.write_line(self.line)


def _fail(session: pytest.Session, fault: str) -> None:
    """Counts `fault` among the failures, so that the closing line and the exit status show it."""
    where = f"tests/{FILE.name}"
    report = pytest.TestReport(where, (where, None, "budget"), {}, "failed", fault, "call")
    session.config.hook.pytest_runtest_logreport(report=report)
    if session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _machine_cpu() -> float:
    """CPU seconds of all programs of this machine so far, and those its host kept."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))


if __name__ == "__main__":  # python -m tests.budget RUN SECONDS
    sys.exit(Budget.load().run_fault(sys.argv[1], float(sys.argv[2])))
