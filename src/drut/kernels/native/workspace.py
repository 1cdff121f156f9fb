"""The memory that the operations of one executable read and write: buffers, logits, routes, activation formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.native.routes import NativeRoutes
from drut.kernels.native.step_memory import StepMemory
from drut.kernels.ops import F32, Buffer
from drut.kernels.weight import padded


class Workspace:
    """Owns the memory that compiled operations point to. It must outlive them: the structs hold raw addresses."""

    def __init__(self, rows: int, logits: F32, formats: Mapping[ops.Op, int], step_memory: StepMemory) -> None:
        """`rows`: of the largest step; `logits` (samples, padded vocabulary); `formats`: of `activation_formats`."""
        self._rows, self._formats, self._step_memory = rows, formats, step_memory
        self.logits = logits
        self.routes = NativeRoutes(rows)
        self.buffers: dict[Buffer, F32] = {}
        self._kept: list[Any] = []

    def buffer(self, buffer: Buffer) -> tuple[int, int]:
        """Returns the address of a buffer's first row, and the stride of its rows in floats."""
        if buffer not in self.buffers:
            width = padded(buffer.width)
            rows = self._rows * buffer.copies
            self.buffers[buffer] = self._step_memory.take(buffer, rows * width * 4).view(np.float32).reshape(-1, width)
        array = self.buffers[buffer]
        return array.ctypes.data, array.shape[1]

    def rope(self, buffer: Buffer | None) -> tuple[int | None, int]:
        """Returns the address of the rope table of the rows, unpadded, and half its width."""
        return (None, 0) if buffer is None else (self.buffer(buffer)[0], buffer.width // 2)

    def activation_format(self, op: ops.Op) -> int:
        """Returns the format in which `op` writes its rows for the next operation, or reads them."""
        return self._formats[op]

    def keep(self, item: Any) -> Any:
        """Keeps `item` alive as long as this object, for a compiled operation that points to it. Returns it."""
        self._kept.append(item)
        return item


def address(item: Any) -> int | None:
    """Returns the address of a packed weight, or None for None."""
    return None if item is None else item.address


def norm(of: ops.Norm | None) -> abi.NormArgs:
    if of is None:
        return abi.NormArgs(weight=None, bias=None, eps=0.0, subtract_mean=0)
    return abi.NormArgs(weight=address(of.weight), bias=address(of.bias), eps=of.eps, subtract_mean=of.centred)
