"""The memory that the operations of one NumPy executable read and write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drut.kernels import ops
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.kv import KvLayout
from drut.kernels.numpy.attention import NumpyPages
from drut.kernels.numpy.experts import Routed
from drut.kernels.numpy.numbers import layer_norm, rms_norm
from drut.kernels.ops import F32, Buffer
from drut.kernels.output import StepOutput


class NumpyState:
    """Buffers live for one step; pages, relay slots and counts of experts live as long as the executable."""

    def __init__(self, pools: Sequence[NDArray[np.uint8]], relay: NDArray[np.int32]) -> None:
        self.pools = pools  # by KV group, (units, bytes)
        self._pages: dict[KvLayout, NumpyPages] = {}
        self.values: dict[Buffer, F32] = {}
        self.relay = relay
        self.logits: F32 = np.zeros((0, 0), np.float32)
        self.out = StepOutput.zeros(0)
        self.routes: dict[ops.Routes, Routed] = {}
        self.loads: dict[int, NDArray[np.int64]] = {}  # by layer: rows of each expert since the start
        self.used: dict[int, int] = {}  # by layer: experts with rows in the last step

    def get(self, buffer: Buffer) -> F32:
        return self.values[buffer]

    def set(self, buffer: Buffer, value: F32) -> None:
        self.values[buffer] = value

    def pages(self, kv: KvLayout) -> NumpyPages:
        if kv not in self._pages:
            self._pages[kv] = NumpyPages(self.pools[kv.group], kv)
        return self._pages[kv]


Run = Callable[[Any, NumpyState, StepDescriptor], None]  # of an operation


def multiply(weight: Any, x: F32) -> F32:
    return weight.multiply(x)  # type: ignore[no-any-return]


def data(vector: Any) -> F32:
    return vector.data  # type: ignore[no-any-return]


def normalized(norm: ops.Norm | None, x: F32) -> F32:
    if norm is None:
        return x
    y = (layer_norm if norm.centred else rms_norm)(x, data(norm.weight), norm.eps)
    return y if norm.bias is None else y + data(norm.bias)
