"""Where the operations of one executable read and write: buffers, logits, experts' rows, hand-over forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from drut.kernels import ops
from drut.kernels.native import abi
from drut.kernels.native.routes import NativeRoutes
from drut.kernels.native.workspace import Workspace
from drut.kernels.ops import F32, Buffer
from drut.kernels.weight import padded


class Room:
    """Memory that compiled operations point to; it must outlive them."""

    def __init__(self, rows: int, logits: F32, forms: Mapping[ops.Op, int], workspace: Workspace) -> None:
        """`rows`: of the largest step; `logits` (samples, padded vocabulary); `forms`: of `forms_of`."""
        self._rows, self._forms, self._workspace = rows, forms, workspace
        self.logits = logits
        self.routes = NativeRoutes(rows)
        self.buffers: dict[Buffer, F32] = {}
        self._kept: list[Any] = []

    def buffer(self, buffer: Buffer) -> tuple[int, int]:
        """Address of a buffer's first row, and floats from one row to the next."""
        if buffer not in self.buffers:
            width = padded(buffer.width)
            rows = self._rows * buffer.copies
            self.buffers[buffer] = self._workspace.take(buffer, rows * width * 4).view(np.float32).reshape(-1, width)
        array = self.buffers[buffer]
        return array.ctypes.data, array.shape[1]

    def rope(self, buffer: Buffer | None) -> tuple[int | None, int]:
        """Address of the rows' table, unpadded, and half its width."""
        return (None, 0) if buffer is None else (self.buffer(buffer)[0], buffer.width // 2)

    def form(self, op: ops.Op) -> int:
        """In which form `op` hands over its rows, or takes those handed to it."""
        return self._forms[op]

    def keep(self, item: Any) -> Any:
        """`item`, which a compiled operation points to."""
        self._kept.append(item)
        return item


def address(item: Any) -> int | None:
    """Of a packed weight; none where there is none."""
    return None if item is None else item.address


def norm(of: ops.Norm | None) -> abi.Norm:
    if of is None:
        return abi.Norm(weight=None, bias=None, eps=0.0, centred=0)
    return abi.Norm(weight=address(of.weight), bias=address(of.bias), eps=of.eps, centred=of.centred)
