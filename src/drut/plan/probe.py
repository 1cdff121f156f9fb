"""Measures the roof: with the loops of the native library if it is built, else the read bandwidth with NumPy."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from drut.errors import DrutError
from drut.kernels.native.memory import reserve
from drut.machine import cpu_model, usable_cpus
from drut.plan.roof import OPERANDS, Roof, key_of

WORKING_SETS = (1 << 18, 1 << 20, 1 << 23, 1 << 26, 1 << 28)
"""Bytes: within L2, the size of L2, within L3, the size of L3, and larger, for the caches of current CPUs."""

SECONDS = 0.45  # duration of a whole measurement, without the first touch of the memory
_NUMPY_SMALLEST = 1 << 23  # below this the cost of NumPy calls distorts the figure
ISA_BITS = {"avx2": 1, "avxvnni": 2, "avx512": 4, "avx512vnni": 8, "avx512bf16": 16, "neon": 32, "dotprod": 64,
            "i8mm": 128}  # as in csrc/roof/roof.cpp


def measure(
    library: ctypes.CDLL | None, cpus: Sequence[int] | None = None, seconds: float = SECONDS
) -> Roof:
    """Measures this machine for 1, 2, 4, ... and all `cpus` (default: the CPUs that this process may use).

    `library` is the native library, None if it is missing. Takes about `seconds`, and 256 MB of memory.
    Raises DrutError if a thread cannot be started.
    """
    cpus = usable_cpus() if cpus is None else cpus
    counts = thread_counts(len(cpus))
    if library is None:
        return _measure_numpy(cpus, counts, seconds)
    return _measure_native(library, cpus, counts, seconds)


def machine_key(library: ctypes.CDLL | None, cpus: Sequence[int] | None = None) -> str:
    """Returns the `key` of the roof that `measure` would return."""
    cpus = usable_cpus() if cpus is None else cpus
    return key_of(cpu_model(), "numpy" if library is None else NativeProbe(library, cpus).isa, len(cpus))


def thread_counts(cpus: int) -> list[int]:
    """Returns the powers of two below `cpus`, and `cpus`."""
    return [*(1 << bit for bit in range(cpus.bit_length()) if 1 << bit < cpus), cpus]


def _measure_native(library: ctypes.CDLL, cpus: Sequence[int], counts: Sequence[int], seconds: float) -> Roof:
    probe = NativeProbe(library, cpus)
    each = seconds / (len(counts) * (len(WORKING_SETS) + len(OPERANDS)))
    buffer = reserve(max(WORKING_SETS), huge=True)  # page faults of small pages would take longer than the measurement
    probe.touch(buffer)
    read = {n: {size: probe.read(buffer[:size], n, each) for size in WORKING_SETS} for n in counts}
    rates = {n: probe.multiply(n, each) for n in counts}
    return Roof(cpu_model(), probe.isa, read, {name: {n: rates[n][name] for n in counts} for name in OPERANDS})


class NativeProbe:
    """Calls the measuring functions of the native library on given CPUs, with the instruction sets of a mask.

    Each method raises DrutError if its threads cannot be started.
    """

    def __init__(self, library: ctypes.CDLL, cpus: Sequence[int], isa_mask: int = -1) -> None:
        self._cpus = (ctypes.c_int * len(cpus))(*cpus)
        self._mask = isa_mask & int(library.drut_roof_isa())
        self._library = library
        memory, cpu_list = (ctypes.c_void_p, ctypes.c_size_t), (ctypes.POINTER(ctypes.c_int), ctypes.c_int)
        library.drut_roof_touch.argtypes = (*memory, *cpu_list)
        library.drut_roof_touch.restype = None
        library.drut_roof_read.argtypes = (*memory, ctypes.c_int, *cpu_list, ctypes.c_double)
        library.drut_roof_read.restype = ctypes.c_double
        library.drut_roof_multiply.argtypes = (
            ctypes.c_int, *cpu_list, ctypes.c_double, ctypes.POINTER(ctypes.c_double))
        library.drut_roof_multiply.restype = None

    @property
    def isa(self) -> str:
        """The usable instruction sets, joined by `+`."""
        return "+".join(name for name, bit in ISA_BITS.items() if self._mask & bit) or "portable"

    def touch(self, buffer: npt.NDArray[np.uint8]) -> None:
        """Writes to the whole buffer with all CPUs, so that its memory is allocated."""
        self._library.drut_roof_touch(buffer.ctypes.data, buffer.nbytes, self._cpus, len(self._cpus))

    def read(self, buffer: npt.NDArray[np.uint8], threads: int, seconds: float) -> float:
        """Returns the GB/s of reading the buffer for `seconds`. Its size must be a multiple of 256 bytes, its address
        of
        64."""
        figure = self._library.drut_roof_read(
            buffer.ctypes.data, buffer.nbytes, self._mask, self._cpus, threads, seconds)
        return _checked(figure, threads)

    def multiply(self, threads: int, seconds: float) -> dict[str, float]:
        """Returns the GMAC/s by OPERANDS; each loop takes `seconds`."""
        rates = (ctypes.c_double * len(OPERANDS))()
        self._library.drut_roof_multiply(self._mask, self._cpus, threads, seconds, rates)
        return {name: _checked(rate, threads) for name, rate in zip(OPERANDS, rates, strict=True)}


def _measure_numpy(cpus: Sequence[int], counts: Sequence[int], seconds: float) -> Roof:
    sizes = [size for size in WORKING_SETS if size >= _NUMPY_SMALLEST]
    each = seconds / (len(counts) * len(sizes))
    buffer = reserve(max(sizes), huge=True).view(np.int32)
    buffer.fill(1)
    read = {n: {size: _numpy_read(buffer[: size // 4], cpus[:n], each) for size in sizes} for n in counts}
    return Roof(cpu_model(), "numpy", read, {})


def _numpy_read(buffer: npt.NDArray[np.int32], cpus: Sequence[int], seconds: float) -> float:
    """Returns the GB/s of finding the maximum, one slice per thread: the fastest read in NumPy."""
    waiting = list(cpus)
    with ThreadPoolExecutor(len(cpus), initializer=lambda: os.sched_setaffinity(0, {waiting.pop()})) as pool:
        slices = np.array_split(buffer, len(cpus))
        best, end = 0.0, time.perf_counter() + seconds
        while not best or time.perf_counter() < end:
            start = time.perf_counter()
            list(pool.map(np.max, slices))
            best = max(best, buffer.nbytes * 1e-9 / (time.perf_counter() - start))
    return round(best, 2)


def _checked(figure: float, threads: int) -> float:
    if figure <= 0:
        raise DrutError(f"cannot start {threads} threads")
    return float(f"{figure:.4g}")  # 4 digits, not decimals: on a busy machine it may be very small
