"""The NumPy backend computes every operation in plain arrays. It is the oracle of the native kernels, and replaces them
if they are not built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drut.formats.encoding import Encoding
from drut.kernels.backend import Backend, BackendLimits, Executable
from drut.kernels.fusion.rules import EVERY
from drut.kernels.kv import CacheLayout
from drut.kernels.numpy.executable import NumpyExecutable
from drut.kernels.numpy.matmul import NumpyMatrix, NumpyStack, make_matrix
from drut.kernels.numpy.operations.table import OPERATIONS, Table
from drut.kernels.ops import F32
from drut.kernels.plan import Plan
from drut.kernels.pool import HostPool, Pool, on_host
from drut.kernels.weight import PAD, padded


@dataclass(frozen=True, eq=False)
class NumpyVector:
    data: F32

    @property
    def size(self) -> int:
        return self.data.size


class NumpyBackend(Backend):
    """Computes on the caller's thread. Replay and eager execution are the same."""

    name = "numpy"
    fusions = EVERY

    def __init__(self, table: Table = OPERATIONS) -> None:
        """`table`: the operations that this backend can run."""
        self._table = table

    def describe(self) -> str:
        return "NumPy kernels"

    def matrix(self, enc: Encoding, raw: NDArray[np.uint8], n: int, k: int, *, rows: NDArray[np.int32] | None = None,
               bias: F32 | None = None, columns: NDArray[np.int32] | None = None, slices: int = 1) -> NumpyMatrix:
        return make_matrix(enc, raw, n, k, rows, bias, columns, slices)

    def stack(self, enc: Encoding, raws: Iterable[NDArray[np.uint8]], count: int, n: int, k: int, *,
              bias: F32 | None = None) -> NumpyStack:
        biases = [None] * count if bias is None else list(bias)
        return NumpyStack(tuple(make_matrix(enc, raw, n, k, None, b) for raw, b in zip(raws, biases, strict=True)))

    def packed_bytes(self, enc: Encoding, n: int, k: int) -> int:
        panel = make_matrix(enc, np.zeros(PAD * enc.row_bytes(k), np.uint8), PAD, k, None, None)
        return panel.nbytes // PAD * (n if enc.is_float else padded(n))

    def vector(self, values: F32) -> NumpyVector:
        return NumpyVector(values.copy())

    def pool(self, layout: CacheLayout, pages: int) -> Pool:
        return HostPool(np.zeros((pages, layout.page_bytes), np.uint8))

    def load(self, plan: Plan, pools: Sequence[Pool], limits: BackendLimits,
             shared_with: Executable | None = None) -> Executable:
        assert shared_with is None or isinstance(shared_with, NumpyExecutable)
        relay = np.zeros(limits.relay_slots, np.int32) if shared_with is None else shared_with.state.relay
        return NumpyExecutable(plan, on_host(pools), relay, self._table)

    def close(self) -> None:
        """Does nothing: the backend owns no threads."""
