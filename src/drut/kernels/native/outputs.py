"""Room for the outputs of one step, in one piece: a step on the host should cost microseconds."""

from __future__ import annotations

import numpy as np

from drut.kernels.descriptor import MAX_TOP_LOGPROBS
from drut.kernels.native import abi
from drut.kernels.output import StepOutput

WORD = 4  # bytes


def make_outputs(context: abi.Context, n: int) -> StepOutput:
    """Outputs of `n` samples, zero, to which `context` points while they live."""
    tops = n * MAX_TOP_LOGPROBS
    words = np.zeros(4 * n + 2 * tops, np.int32)
    floats, shape, at = words.view(np.float32), (n, MAX_TOP_LOGPROBS), words.ctypes.data
    context.tokens, context.status = at, at + n * WORD
    context.logprobs, context.ranks = at + 2 * n * WORD, at + 3 * n * WORD
    context.top_ids, context.top_logprobs = at + 4 * n * WORD, at + (4 * n + tops) * WORD
    return StepOutput(tokens=words[:n], status=words[n : 2 * n], logprobs=floats[2 * n : 3 * n],
                      ranks=words[3 * n : 4 * n], top_ids=words[4 * n : 4 * n + tops].reshape(shape),
                      top_logprobs=floats[4 * n + tops :].reshape(shape))
