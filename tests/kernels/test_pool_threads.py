"""The native thread pool: it sleeps when idle, leaves nothing behind, and leaves its caller as it was."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import numpy as np
import pytest

from drut.errors import UnsupportedError
from drut.kernels.native import library
from drut.kernels.native.backend import NativeBackend
from tests.kernels.rig import F32, project, random_matrix

pytestmark = [pytest.mark.serial, pytest.mark.skipif(library.load() is None, reason="the native kernels are not built")]


def work(backend: NativeBackend) -> F32:
    rng = np.random.default_rng(0)
    return project(backend, random_matrix(rng, "Q8_0", 33, 64), rng.standard_normal((8, 64)).astype(np.float32))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def threads_become(count: int) -> bool:
    """At most so many: a joined thread may be listed for a moment longer, and threads of other tests may end."""
    for _ in range(200):
        if threads() <= count:
            return True
        time.sleep(0.01)
    return False


def memory() -> list[int]:
    """Mapped and resident bytes."""
    return [int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in Path("/proc/self/statm").read_text().split()[:2]]


def test_idle_workers_sleep() -> None:
    backend = NativeBackend(3)
    work(backend)
    time.sleep(0.02)  # past the workers' spinning
    before = time.process_time()  # of all threads
    time.sleep(0.5)
    assert time.process_time() - before < 0.005
    work(backend)  # and they wake again
    backend.close()


@pytest.mark.slow
def test_pools_come_and_go_without_a_trace() -> None:
    def churn(count: int) -> None:
        for _ in range(count):
            backend = NativeBackend(3)
            work(backend)
            backend.close()
        gc.collect()

    alive = threads()
    churn(20)
    files, (mapped, resident) = open_files(), memory()
    churn(150)
    assert threads_become(alive)
    assert open_files() == files
    assert memory()[0] - mapped < 300 << 20  # a stack is 8 MiB, and a thread that is not joined keeps it
    assert memory()[1] - resident < 4 << 20


def test_a_pool_that_never_worked_ends() -> None:
    before = threads()
    backend = NativeBackend(5)
    assert threads() == before + 4  # the caller is the fifth
    backend.close()
    backend.close()
    assert threads_become(before)


def test_many_pools_side_by_side() -> None:
    backends = [NativeBackend(2) for _ in range(8)]
    expected = work(backends[0])
    for _ in range(20):
        for backend in backends:
            assert (work(backend) == expected).all()
    for backend in backends:
        backend.close()


def test_workers_keep_in_step() -> None:
    """Many short runs by more workers than CPUs: none is lost, none runs twice."""
    backend = NativeBackend(5)
    expected = work(backend)
    for _ in range(50):
        assert (work(backend) == expected).all()
    backend.close()


def test_the_caller_keeps_its_cpus_and_its_subnormals() -> None:
    affinity = os.sched_getaffinity(0)
    backend = NativeBackend(2)
    for _ in range(20):
        work(backend)
    backend.close()
    assert os.sched_getaffinity(0) == affinity
    assert np.float32(1e-40) * np.float32(0.5) > 0


def test_an_instruction_set_must_be_known_and_there() -> None:
    with pytest.raises(UnsupportedError, match="'sse9' is unknown"):
        NativeBackend(1, "sse9")
    absent = [isa.name for isa in library.isas(library.load()) if not isa.supported]
    for name in absent:
        with pytest.raises(UnsupportedError, match=f"'{name}' is not on this CPU"):
            NativeBackend(1, name)
    assert NativeBackend(1, "portable").describe() == "native kernels (portable), 1 thread"
