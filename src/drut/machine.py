"""The resources of the machine that this process may use."""

from __future__ import annotations

import math
import os
import platform
import re
from pathlib import Path


def cpu_model(root: Path = Path("/")) -> str:
    """Returns the processor's name from the kernel, else the architecture. `root` contains `proc`."""
    text = _read(root / "proc/cpuinfo")
    name = re.search(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", text, re.M)
    if name:
        return " ".join(name[1].split())
    ids = [re.search(rf"^CPU {key}\s*:\s*(\S+)$", text, re.M) for key in ("implementer", "part")]
    return " ".join([platform.machine(), *(i[1] for i in ids if i)])


def usable_cpus(root: Path = Path("/"), allowed: set[int] | None = None) -> list[int]:
    """Returns the CPUs for one busy thread each, at least one: CPUs of the process's affinity, one hardware thread of
    every core before a second one, at most as many as the control group's quota. `root` contains `proc` and `sys`."""
    allowed = os.sched_getaffinity(0) if allowed is None else allowed
    first: list[int] = []
    second: list[int] = []
    seen: set[str] = set()
    for cpu in sorted(allowed):
        core = _read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        (second if core in seen else first).append(cpu)
        seen.add(core)
    return (first + second)[: _quota(root)]


def _quota(root: Path) -> int | None:
    """Returns the number of CPUs that the control groups of this process allow, rounded up; None without a limit."""
    limits = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        files = ["cpu.max"] if controllers == "" else ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        group = Path(path.lstrip("/"))
        # A container has its own group at the mount's root, the host has the whole path; limits of parents apply, too.
        for folder in {mount / parent for parent in (group, *group.parents)}:
            values = " ".join(_read(folder / file) for file in files).split()
            if len(values) == 2 and values[0].isdigit() and values[1].isdigit() and int(values[1]):
                limits.append(max(1, math.ceil(int(values[0]) / int(values[1]))))
    return min(limits, default=None)


def _read(path: Path) -> str:
    """Returns the text of a small kernel file; empty if it is missing."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
