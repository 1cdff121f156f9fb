"""Watching real processes: what they used is found, also where they ended before the last sample."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from drut.bench.resources import ResourceWatch
from drut.bench.resources.machine import busy_share, steal_share
from drut.errors import RequestError
from tests.bench.resources.nvml import FakeNvml
from tests.bench.resources.test_rapl import domain

pytestmark = pytest.mark.serial  # they compare what processes used

BURN = "import time\nwhile time.process_time() < {s}: pass\n"
PARENT = f"""
import subprocess, sys
held = bytearray(40 << 20)
sys.stdin.readline()  # until the watch has taken its first sample
subprocess.run([sys.executable, "-c", {BURN.format(s=0.3)!r}])  # ends, and is waited for, before the parent does
{BURN.format(s=0.2)}
print("done", flush=True)
sys.stdin.read()
"""


def test_a_server_with_a_worker_that_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        watch = ResourceWatch(process.pid, every_s=0.05)
        watch.start()
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        result = watch.stop()
        process.stdin.close()
    assert result.server
    # Starting an interpreter costs CPU time too; that of the worker after its last sample is not seen.
    assert 0.35 < result.server.cpu_s < 2
    assert result.server.cpus == pytest.approx(result.server.cpu_s / result.seconds)
    assert result.server.peak_rss_bytes > 40 << 20
    assert result.server.processes == 2
    assert result.samples > 3
    assert 0 < result.machine.busy_share <= 1
    assert result.client.cpu_s < result.server.cpu_s / 2  # the server is a child of this process and no part of it


def test_what_others_took() -> None:
    with ResourceWatch(os.getppid(), every_s=0.05) as watch:
        result = watch.stop()
    assert result.server
    made = replace(result, machine=replace(result.machine, cpus=8, busy_share=0.75),
                   client=replace(result.client, cpus=1.0), server=replace(result.server, cpus=2.0))
    assert made.others_cpus == pytest.approx(3)
    assert replace(made, client=replace(made.client, cpus=7.0)).others_cpus == 0
    assert replace(made, server=None).others_cpus is None


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the kernel reports no proportional size")
def test_shared_pages_count_in_part() -> None:
    with ResourceWatch(every_s=0.05) as watch:
        result = watch.stop()
    assert result.client.peak_pss_bytes
    assert 0 < result.client.peak_pss_bytes <= result.client.peak_rss_bytes * 1.1  # grew by a little between the two


def test_the_client_counts_its_workers() -> None:
    watch = ResourceWatch(every_s=0.05)
    watch.start()
    subprocess.run([sys.executable, "-c", BURN.format(s=0.3)], check=True)
    result = watch.stop()
    assert result.client.cpu_s > 0.29  # clock ticks are of 10 ms
    assert result.server is None


def test_gpus_and_energy_where_they_are(tmp_path: Path) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 0)
    watch = ResourceWatch(every_s=60, nvml=FakeNvml(), powercap=tmp_path)
    watch.start()
    counter.write_text("2000000")
    result = watch.stop()
    assert result.gpus
    assert result.gpus[0].max_watts == 200
    assert result.energy
    assert result.energy[0].joules == 2
    assert result.unreadable == []


def test_what_cannot_be_read_is_stated(tmp_path: Path) -> None:
    counter = domain(tmp_path, "intel-rapl:0", "package-0", 0)
    watch = ResourceWatch(every_s=60, nvml=FakeNvml(0), powercap=tmp_path)
    watch.start()
    counter.unlink()
    result = watch.stop()
    assert (result.gpus, result.energy) == (None, None)
    assert [text.split(":")[0] for text in result.unreadable] == ["GPUs", "RAPL"]


def test_a_server_that_is_not_there_or_goes() -> None:
    with pytest.raises(RequestError, match="does not exist"):
        ResourceWatch(2**22 + 1)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        watch = ResourceWatch(process.pid, every_s=0.02)
        watch.start()
        process.communicate()
    time.sleep(0.1)
    result = watch.stop()
    assert result.server
    assert result.server.cpu_s >= 0
    assert result.server.peak_rss_bytes > 0


@pytest.mark.slow
def test_sampling_once_a_second_takes_less_than_a_hundredth_of_a_core() -> None:
    watch = ResourceWatch()
    watch.start()
    time.sleep(2)
    assert watch.stop().sampling_cpus < 0.01


Times = namedtuple("Times", "user nice system idle iowait irq softirq steal guest")


def test_shares_of_cpu_time() -> None:
    old = Times(10, 0, 5, 100, 1, 0, 0, 2, 5)
    new = Times(30, 0, 15, 150, 11, 0, 0, 12, 20)  # 100 s more in all, of which 60 idle or waiting, 10 stolen
    assert busy_share(old, new) == pytest.approx(0.4)
    assert steal_share(old, new) == pytest.approx(0.1)
    assert busy_share(old, old) == steal_share(old, old) == 0
    assert steal_share(object(), object()) is None
