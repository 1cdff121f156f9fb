"""A burst whose steps run in one native call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from drut.kernels.burst import PATIENCE_S, Burst, BurstProgress
from drut.kernels.native import abi
from drut.kernels.output import StepOutput


class NativeBurst(Burst):
    """The native call writes the outputs of all steps one after another and wakes the waiting thread. No locks.

    The struct's words are shared with the running call: `progress` is only read here, `stop` only written.
    """

    def __init__(self, library: ctypes.CDLL, context: abi.ContextArgs, steps: int,
                 ends: Sequence[Sequence[int]]) -> None:
        """Copies the executable's `context` and replaces only its outputs: the executable must outlive the burst."""
        super().__init__(steps, ends)
        self._library = library
        self._first = np.array([0, *accumulate(len(e) for e in ends)], np.int32)
        self._ids = np.array([i for e in ends for i in e], np.int32)
        self._strip = out = StepOutput.zeros(steps, len(ends))
        self._struct = abi.BurstArgs(steps=steps, progress=0, stop=0, end_first=self._first.ctypes.data,
                                     end_id=self._ids.ctypes.data)
        self.context = abi.ContextArgs.from_buffer_copy(context)
        for name, array in zip(StepOutput._fields, out, strict=True):
            setattr(self.context, name, array.ctypes.data)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._struct)

    @property
    def progress(self) -> BurstProgress:
        word = self._struct.progress
        return BurstProgress(word >> 1, bool(word & 1))

    def stop(self) -> None:
        self._struct.stop = 1

    def output(self, step: int) -> StepOutput:
        return StepOutput(*(array[step] for array in self._strip))

    def wait(self, seen: int) -> None:
        self._library.drut_burst_wait(self.address, seen, int(PATIENCE_S * 1e9))

    def abandon(self) -> None:
        self._library.drut_burst_abandon(self.address)
