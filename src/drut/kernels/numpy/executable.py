"""The NumPy executable: runs the operations of a plan one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drut.errors import UnsupportedError
from drut.kernels.backend import Executable, Host
from drut.kernels.descriptor import StepDescriptor
from drut.kernels.numpy.operations.ends import draw
from drut.kernels.numpy.operations.table import Table
from drut.kernels.numpy.state import NumpyState
from drut.kernels.ops import F32, Buffer
from drut.kernels.output import StepOutput
from drut.kernels.pending import Finished, Pending
from drut.kernels.plan import Plan


class NumpyExecutable(Executable):
    """Runs a plan whose operations are all in `table`. Raises UnsupportedError if one is missing."""

    def __init__(self, plan: Plan, pools: Sequence[NDArray[np.uint8]], relay: NDArray[np.int32],
                 table: Table) -> None:
        for op in plan.ops:
            if type(op) not in table:
                raise UnsupportedError(f"the NumPy kernels have no operation {type(op).__name__}")
        self._plan, self._table = plan, table
        self.state = NumpyState(pools, relay)

    def launch(self, step: StepDescriptor, host: Host | None = None) -> Pending:
        for segment in self._plan.segments:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                for op in segment.ops:
                    self._table[type(op)](op, self.state, step)
            if host is not None and segment.stop is not None:
                host(segment.stop)
        return Finished(self.state.out)

    def redraw(self, step: StepDescriptor, samples: Sequence[int]) -> None:
        for values, blank in zip(self.state.out, StepOutput.zeros(len(samples)), strict=True):
            values[list(samples)] = blank
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            draw(self.state, step, samples)

    def logits(self, count: int) -> F32:
        return self.state.logits[:count]

    def rows(self, buffer: Buffer, count: int) -> F32:
        return self.state.get(buffer)[:count]

    def fill(self, buffer: Buffer, rows: F32) -> None:
        self.state.set(buffer, rows)

    def expert_loads(self) -> dict[int, NDArray[np.int64]]:
        return {layer: counts.copy() for layer, counts in self.state.loads.items()}

    def used_experts(self) -> tuple[int, ...]:
        used = self.state.used
        return tuple(used.get(layer, 0) for layer in range(max(used, default=-1) + 1))
