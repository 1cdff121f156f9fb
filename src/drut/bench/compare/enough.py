"""Which percentiles a turn supports.

The nearest rank of a high percentile of few requests is the slowest request, and the slowest of fifty is slower than
the slowest of three, even if two engines are equal. So an engine that completes fewer requests in the same time would
look better.
"""

from __future__ import annotations

import math
import re

from drut.bench.compare.schema import Block
from drut.bench.stats.distribution import Figure

_PERCENTILE = re.compile(r"(.+)_p(9[0-9])")


def supported(block: Block, figure: str) -> Figure:
    """Returns the block's figure; None if it is a percentile that no request exceeds."""
    least = least_answers(figure)
    return None if least and answers(block, figure) < least else block.figures.get(figure)


def least_answers(figure: str) -> int:
    """Returns the number of requests at which one exceeds the percentile `figure`: 100 for p99. 0 if it is not a
    percentile, or the median."""
    found = _PERCENTILE.fullmatch(figure)
    return math.ceil(100 / (100 - int(found[2]))) if found else 0


def answers(block: Block, figure: str = "e2e_ms_p50") -> float:
    """Returns the number of requests behind a latency figure; infinite if the file does not state it, as for ITL, which
    has one value per token."""
    samples = block.samples.get(figure.rpartition("_p")[0])
    return math.inf if samples is None else len(samples)
