"""Which percentiles a turn can tell.

The nearest rank of a high percentile of few requests is the slowest of them, and the slowest of fifty is slower than
the slowest of three, however alike two engines are. So an engine that gives fewer answers in the same time would look
the better for it.
"""

from __future__ import annotations

import math
import re

from drut.bench.compare.schema import Block
from drut.bench.stats.distribution import Figure

_PERCENTILE = re.compile(r"(.+)_p(9[0-9])")


def told(block: Block, figure: str) -> Figure:
    """The block's figure; None where it is a percentile that no request lies beyond."""
    least = least_answers(figure)
    return None if least and answers(block, figure) < least else block.figures.get(figure)


def least_answers(figure: str) -> int:
    """Requests of a turn of which one at least lies beyond the percentile that `figure` is: 100 for p99. 0: it is none,
    or the median."""
    found = _PERCENTILE.fullmatch(figure)
    return math.ceil(100 / (100 - int(found[2]))) if found else 0


def answers(block: Block, figure: str = "e2e_ms_p50") -> float:
    """Requests that the figure of a latency is made of; infinite where the file does not say, as of ITL, of which there
    is one a token."""
    samples = block.samples.get(figure.rpartition("_p")[0])
    return math.inf if samples is None else len(samples)
