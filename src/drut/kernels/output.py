"""The output of a step: sampled tokens and logprobs."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drut.kernels.descriptor import MAX_TOP_LOGPROBS
from drut.kernels.ops import F32


class Status(IntEnum):
    """The result of a sample."""

    DRAWN = 0
    NOT_FINITE = 1  # a logit is NaN or infinite
    NONE_LEFT = 2  # logits processors and grammar mask leave no id


class StepOutput(NamedTuple):
    """The arrays of a step, by sample. Logprobs are of the raw logits. If not requested: 0, rank 0 and ids -1."""

    tokens: NDArray[np.int32]
    status: NDArray[np.int32]  # a Status; the token is valid only if DRAWN
    logprobs: F32  # of the token
    ranks: NDArray[np.int32]  # of the token; 1 is the most likely
    top_ids: NDArray[np.int32]  # (samples, MAX_TOP_LOGPROBS): most likely first, then -1
    top_logprobs: F32  # (samples, MAX_TOP_LOGPROBS)

    @property
    def drawn(self) -> NDArray[np.bool_]:
        """True for samples with a token."""
        return np.equal(self.status, Status.DRAWN)

    @staticmethod
    def zeros(*shape: int) -> StepOutput:
        """Returns empty outputs of shape (samples) or (steps, samples)."""
        tops = (*shape, MAX_TOP_LOGPROBS)
        return StepOutput(tokens=np.zeros(shape, np.int32), status=np.zeros(shape, np.int32),
                          logprobs=np.zeros(shape, np.float32), ranks=np.zeros(shape, np.int32),
                          top_ids=np.full(tops, -1, np.int32), top_logprobs=np.zeros(tops, np.float32))
