"""What a step brings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.kernels.descriptor import MAX_TOP_LOGPROBS
from drut.kernels.ops import F32


class StepOutput(NamedTuple):
    """Of the last step, by sample. Logprobs are of the raw logits; 0, rank 0 and ids -1 where none were asked for."""

    tokens: NDArray[np.int32]
    finite: NDArray[np.bool_]  # False: a logit is NaN or infinite, or edits and mask leave none; no token then
    logprobs: F32  # of the token
    ranks: NDArray[np.int32]  # of the token, 1 the likeliest
    top_ids: NDArray[np.int32]  # (samples, MAX_TOP_LOGPROBS): the likeliest first, then -1
    top_logprobs: F32  # (samples, MAX_TOP_LOGPROBS)

    def copy(self) -> StepOutput:
        """One that no later step writes over."""
        return self._replace(**{name: array.copy() for name, array in self._asdict().items()})

    @staticmethod
    def zeros(*shape: int) -> StepOutput:
        """Of (samples), or of (steps, samples)."""
        tops = (*shape, MAX_TOP_LOGPROBS)
        return StepOutput(np.zeros(shape, np.int32), np.zeros(shape, np.bool_), np.zeros(shape, np.float32),
                          np.zeros(shape, np.int32), np.full(tops, -1, np.int32), np.zeros(tops, np.float32))
