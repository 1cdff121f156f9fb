"""The native backend: packs weights into panels, compiles operations to structs, and does step replay in one call."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drut.errors import ModelFileError, UnsupportedError
from drut.formats.decode import split
from drut.formats.encoding import Encoding, planes
from drut.formats.planes import joined_int4
from drut.kernels.backend import BackendLimits, Executable, PackingBackend
from drut.kernels.fusion.rules import EVERY
from drut.kernels.kv import CacheLayout
from drut.kernels.native import abi, library
from drut.kernels.native.memory import Arena, reserve
from drut.kernels.ops import F32
from drut.kernels.plan import Plan
from drut.kernels.pool import HostPool, Pool, on_host
from drut.kernels.weight import PAD, Matrix, Stack, padded
from drut.machine import usable_cpus

TERNARY = dict.fromkeys(("TQ1_0", "TQ2_0"), planes("int4", 256, "f16"))  # packed as 4-bit codes
PROBE_N, PROBE_K = 33, 512  # a whole panel and one of a single row, two super-blocks


@dataclass(frozen=True, eq=False, kw_only=True)
class NativeMatrix:
    """A matrix packed in panels of 32 outputs (csrc/weights/kinds.h). Operations point to `struct`."""

    n: int
    k: int
    encoding: Encoding
    data: NDArray[np.uint8]
    bias: F32 | None
    columns: NDArray[np.int32] | None
    struct: abi.MatrixArgs

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def address(self) -> int:
        return ctypes.addressof(self.struct)


@dataclass(frozen=True, eq=False, kw_only=True)
class NativeStack:
    """`count` matrices one after another in `data`, and their `structs` one after another."""

    count: int
    n: int
    k: int
    encoding: Encoding
    data: NDArray[np.uint8]
    bias: F32 | None
    structs: ctypes.Array[abi.MatrixArgs]

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def address(self) -> int:
        return ctypes.addressof(self.structs)


@dataclass(frozen=True, eq=False)
class NativeVector:
    size: int
    data: F32

    @property
    def address(self) -> int:
        return self.data.ctypes.data


class NativeBackend(PackingBackend):
    """Owns a thread pool and uses one instruction set. Use from one thread at a time."""

    name = "native"
    fusions = EVERY

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
               bias: F32 | None = None, columns: NDArray[np.int32] | None = None, slices: int = 1) -> NativeMatrix:
        data = self._arena.take(self.packed_bytes(enc, n, k))
        if self._pack(enc, raw, n, k, rows, data):
            raise ModelFileError("a scale is not finite")
        return self.adopt(enc, data, n, k, bias=bias, columns=columns, slices=slices)

    def _pack(self, enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, rows: NDArray[np.int32] | None,
              data: NDArray[np.uint8]) -> int:
        """Packs into `data`, which must be zero. Returns 0 if all scales are finite."""
        raw = np.ascontiguousarray(raw)
        if enc.name in TERNARY:
            codes, scales, _ = split(enc, raw, k)
            raw = joined_int4(codes.astype(np.int8), scales.astype(np.float16))
            enc = TERNARY[enc.name]
        assert raw.nbytes == n * enc.row_bytes(k), "the caller checks shapes against the file"
        if rows is not None:
            rows = np.ascontiguousarray(rows, np.int32)
            assert len(rows) == n
            assert rows.min() >= 0
            assert rows.max() < n
        order = rows.ctypes.data if rows is not None else None
        struct = _struct(enc, n, k)
        return int(self.library.drut_pack(self.workers, ctypes.byref(struct), k, enc.row_bytes(k), raw.ctypes.data,
                                          order, data.ctypes.data))

    def adopt(self, enc: Encoding, data: NDArray[np.uint8], n: int, k: int, *,
              bias: F32 | None = None, columns: NDArray[np.int32] | None = None, slices: int = 1) -> NativeMatrix:
        assert data.nbytes == self.packed_bytes(enc, n, k)
        assert slices in (1, 2, 4, 8)
        struct = _struct(enc, n, k)
        struct.data, struct.slices = data.ctypes.data, slices
        if bias is not None:
            bias = _padded(bias, padded(n))
            struct.bias = bias.ctypes.data
        if columns is not None:
            columns = np.ascontiguousarray(columns, np.int32)
            assert np.array_equal(np.sort(columns), np.arange(k))
            assert k % PAD == 0
            assert not enc.is_float
            struct.order = columns.ctypes.data
        return NativeMatrix(n=n, k=k, encoding=enc, data=data, bias=bias, columns=columns, struct=struct)

    def stack(self, enc: Encoding, raws: Iterable[NDArray[np.uint8]], count: int, n: int, k: int, *,
              bias: F32 | None = None) -> NativeStack:
        each = self.packed_bytes(enc, n, k)
        data = self._arena.take(count * each)
        for i, raw in zip(range(count), raws, strict=True):
            self._pack(enc, raw, n, k, None, data[i * each : (i + 1) * each])
        return self.adopt_stack(enc, data, count, n, k, bias=bias)

    def adopt_stack(self, enc: Encoding, data: NDArray[np.uint8], count: int, n: int, k: int, *,
                    bias: F32 | None = None) -> NativeStack:
        each, wide = self.packed_bytes(enc, n, k), padded(n)
        assert data.nbytes == count * each
        kept = None
        if bias is not None:
            kept = reserve(count * wide * 4).view(np.float32)[: count * wide]
            kept.reshape(count, wide)[:, :n] = bias
        structs = (abi.MatrixArgs * count)()
        for i in range(count):
            at = None if kept is None else kept.ctypes.data + 4 * i * wide
            structs[i] = _struct(enc, n, k)
            structs[i].data, structs[i].bias = data.ctypes.data + i * each, at
        return NativeStack(count=count, n=n, k=k, encoding=enc, data=data, bias=kept, structs=structs)

    def packing(self, encodings: Iterable[Encoding]) -> str:
        """Returns a digest of a small packed matrix of each encoding: a new layout needs no new version."""
        found = hashlib.sha256()
        for enc in sorted(set(encodings), key=lambda e: e.name):
            raw = np.arange(PROBE_N * enc.row_bytes(PROBE_K)) * 167 // 59 % 251  # no shift gives the same block
            data = np.zeros(self.packed_bytes(enc, PROBE_N, PROBE_K), np.uint8)
            self._pack(enc, raw.astype(np.uint8), PROBE_N, PROBE_K, None, data)
            found.update(f"{enc.name} {data.nbytes} ".encode())
            found.update(data.data)
        return f"{self.name} {found.hexdigest()}"

    def packed(self, matrix: Matrix | Stack) -> NDArray[np.uint8]:
        assert isinstance(matrix, NativeMatrix | NativeStack)
        return matrix.data

    def packed_bytes(self, enc: Encoding, n: int, k: int) -> int:
        struct = _struct(enc, n, k)
        return int(self.library.drut_packed_bytes(ctypes.byref(struct)))

    def vector(self, values: F32) -> NativeVector:
        return NativeVector(values.size, _padded(values, padded(values.size)))

    def pool(self, layout: CacheLayout, pages: int) -> Pool:
        return HostPool(reserve(pages * layout.page_bytes, huge=True).reshape(pages, layout.page_bytes))

    def load(self, plan: Plan, pools: Sequence[Pool], limits: BackendLimits,
             shared_with: Executable | None = None) -> Executable:
        from drut.kernels.native.executable import NativeExecutable

        assert shared_with is None or isinstance(shared_with, NativeExecutable)
        return NativeExecutable(self, plan, on_host(pools), limits, shared_with)

    def close(self) -> None:
        if self.workers is not None:
            self.library.drut_pool_destroy(self.workers)
            self.workers = None

    def __del__(self) -> None:
        if getattr(self, "workers", None) is not None:
            self.close()


def _struct(enc: Encoding, n: int, k: int) -> abi.MatrixArgs:
    """Returns a matrix struct without its pointers."""
    enc = TERNARY.get(enc.name, enc)
    format_fields: dict[str, Any]
    if enc.block_bytes or enc.row_scale:
        format_fields = {"kind": abi.KINDS[enc.name], "group": 0, "scale": 0, "zeros": 0}
    else:
        format_fields = {"kind": abi.KINDS["fp8" if enc.is_float else f"int{enc.bits}"], "group": enc.group,
                         "scale": abi.SCALES[enc.scale], "zeros": enc.offset == "zero_points"}
    return abi.MatrixArgs(data=None, bias=None, order=None, n=n, k=padded(k), slices=1, **format_fields)


def _padded(values: F32, size: int) -> F32:
    region = reserve(size * 4).view(np.float32)[:size]
    region[: values.size] = values.ravel()
    return region
