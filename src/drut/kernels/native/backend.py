"""The native backend: packs weights into panels, compiles operations to structs, replays a plan in one call."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drut.errors import UnsupportedError
from drut.formats.encoding import Encoding
from drut.kernels.backend import Backend, Executable, Limits
from drut.kernels.kv import KvLayout
from drut.kernels.native import abi, library
from drut.kernels.native.memory import Arena, reserve
from drut.kernels.ops import F32
from drut.kernels.plan import Plan
from drut.kernels.weight import padded
from drut.machine import usable_cpus


@dataclass(frozen=True, eq=False)
class NativeMatrix:
    """`data` in panels of 32 outputs (csrc/packing.h); `struct` is what operations point to."""

    n: int
    k: int
    encoding: Encoding
    data: NDArray[np.uint8]
    bias: F32 | None
    struct: abi.Matrix

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def address(self) -> int:
        return ctypes.addressof(self.struct)


@dataclass(frozen=True, eq=False)
class NativeVector:
    size: int
    data: F32

    @property
    def address(self) -> int:
        return self.data.ctypes.data


class NativeBackend(Backend):
    """One thread pool and one instruction set. Use from one thread at a time."""

    name = "native"

    def __init__(self, threads: int, isa: str = "auto", execution: str = "replay") -> None:
        loaded = library.load()
        if loaded is None:
            raise OSError("the native library is not built")
        self.library = loaded
        self.isa = library.choose_isa(loaded, isa)
        self.isa_handle = loaded.drut_isa(self.isa.encode())
        self.threads = threads
        self.execution = execution
        cpus = np.array(usable_cpus(), np.int32)
        self.workers: int | None = loaded.drut_pool_create(threads, cpus.ctypes.data, len(cpus))
        if self.workers is None:
            raise UnsupportedError(f"{threads} threads cannot be started on this machine")
        self._arena = Arena()

    def describe(self) -> str:
        return f"native kernels ({self.isa}), {self.threads} thread{'s' * (self.threads != 1)}"

    def matrix(self, enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, *, rows: NDArray[np.int32] | None = None,
               bias: F32 | None = None) -> NativeMatrix:
        kind = abi.KINDS[enc.name]
        raw = np.ascontiguousarray(raw)
        assert raw.nbytes == n * enc.row_bytes(k), "the caller checks shapes against the file"
        data = self._arena.take(self.library.drut_packed_bytes(kind, n, k))
        if rows is not None:
            rows = np.ascontiguousarray(rows, np.int32)
            assert len(rows) == n
            assert rows.min() >= 0
            assert rows.max() < n
        order = rows.ctypes.data if rows is not None else None
        self.library.drut_pack(self.workers, kind, n, k, raw.ctypes.data, order, data.ctypes.data)
        kept = _padded(bias, padded(n)) if bias is not None else None
        struct = abi.Matrix(data.ctypes.data, kept.ctypes.data if kept is not None else None, kind, n, padded(k), 0)
        return NativeMatrix(n, k, enc, data, kept, struct)

    def vector(self, values: F32) -> NativeVector:
        return NativeVector(values.size, _padded(values, padded(values.size)))

    def pool(self, layout: KvLayout, pages: int) -> NDArray[np.uint8]:
        return reserve(pages * layout.page_bytes, huge=True).reshape(pages, layout.page_bytes)

    def load(self, plan: Plan, pool: NDArray[np.uint8], limits: Limits) -> Executable:
        from drut.kernels.native.executable import NativeExecutable

        return NativeExecutable(self, plan, pool, limits)

    def close(self) -> None:
        if self.workers is not None:
            self.library.drut_pool_destroy(self.workers)
            self.workers = None

    def __del__(self) -> None:
        if getattr(self, "workers", None) is not None:
            self.close()


def _padded(values: F32, size: int) -> F32:
    region = reserve(size * 4).view(np.float32)[:size]
    region[: values.size] = values.ravel()
    return region
