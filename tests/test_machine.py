from __future__ import annotations

from pathlib import Path

import pytest

from drut.machine import cpu_model, usable_cpus


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(("cpuinfo", "name"), [
    ("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\nmodel name\t: other\n", "Some CPU @ 2 GHz"),
    ("processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n", "0x41 0xd4f"),
])
def test_cpu_model(tmp_path: Path, cpuinfo: str, name: str) -> None:
    put(tmp_path, "proc/cpuinfo", cpuinfo)
    assert cpu_model(tmp_path).endswith(name)


def test_cpu_model_without_cpuinfo(tmp_path: Path) -> None:
    assert cpu_model(tmp_path)


def test_every_core_comes_before_a_second_thread_of_any(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(["0-1", "0-1", "2-3", "2-3"]):
        put(tmp_path, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings + "\n")
    assert usable_cpus(tmp_path, {0, 1, 2, 3}) == [0, 2, 1, 3]
    assert usable_cpus(tmp_path, {1, 2, 3}) == [1, 2, 3]


@pytest.mark.parametrize(("files", "count"), [
    ({}, 4),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 4),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
    ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "100000 100000\n"}, 1),
    ({"proc/self/cgroup": "3:cpu,cpuacct:/x\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
      "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 3),
    ({"proc/self/cgroup": "3:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
      "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 4),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
])
def test_the_quota_of_a_control_group_binds(tmp_path: Path, files: dict[str, str], count: int) -> None:
    for path, text in files.items():
        put(tmp_path, path, text)
    assert usable_cpus(tmp_path, {0, 1, 2, 3}) == list(range(count))
