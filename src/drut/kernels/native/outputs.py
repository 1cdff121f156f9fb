"""Outputs of native steps. Each is one block of memory that is reused, so that a step allocates nothing."""

from __future__ import annotations

import numpy as np

from drut.kernels.descriptor import MAX_TOP_LOGPROBS
from drut.kernels.native import abi
from drut.kernels.output import StepOutput
from drut.kernels.pending import Pending

WORD = 4  # bytes


class OutputSet(Pending):
    """The outputs of a step of `n` samples. The native side writes all of them before `launch` returns."""

    done = True

    def __init__(self, n: int, spare: list[OutputSet]) -> None:
        """`spare`: the list to which `release` returns it."""
        tops = n * MAX_TOP_LOGPROBS
        words = np.zeros(4 * n + 2 * tops, np.int32)
        floats, shape, at = words.view(np.float32), (n, MAX_TOP_LOGPROBS), words.ctypes.data
        self._spare = spare
        self._addresses = (at, at + n * WORD, at + 2 * n * WORD, at + 3 * n * WORD, at + 4 * n * WORD,
                           at + (4 * n + tops) * WORD)
        self.output = StepOutput(tokens=words[:n], status=words[n : 2 * n], logprobs=floats[2 * n : 3 * n],
                                 ranks=words[3 * n : 4 * n], top_ids=words[4 * n : 4 * n + tops].reshape(shape),
                                 top_logprobs=floats[4 * n + tops :].reshape(shape))

    def point(self, context: abi.ContextArgs) -> None:
        """Sets the output pointers of `context` to this memory."""
        (context.tokens, context.status, context.logprobs, context.ranks, context.top_ids,
         context.top_logprobs) = self._addresses

    def result(self) -> StepOutput:
        return self.output

    def release(self) -> None:
        self._spare.append(self)


class OutputSets:
    """Output sets by number of samples; released sets are used again first."""

    def __init__(self) -> None:
        self._spare: dict[int, list[OutputSet]] = {}

    def take(self, n: int) -> OutputSet:
        """Returns a free output set for `n` samples."""
        spare = self._spare.setdefault(n, [])
        return spare.pop() if spare else OutputSet(n, spare)
