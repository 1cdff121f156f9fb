"""The mean of a figure over rounds, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from drut.bench.stats.distribution import Figure
from drut.bench.stats.paired import MIN_ROUNDS
from drut.bench.stats.quantiles import t_half

_MAX = 1e100  # a file may hold larger values, whose sums may be infinite


def over_rounds(values: Sequence[float | Literal["inf"]], *, logarithmic: bool) -> tuple[Figure, Figure, Figure]:
    """Returns the mean of rounds, geometric if `logarithmic`, with Student's 95 % interval; no interval for fewer than
    three rounds, and nothing if a round has no finite value."""
    numbers = [math.inf if v == "inf" or v > _MAX else float(v) for v in values]
    if math.inf in numbers:
        return ("inf" if sum(map(math.isinf, numbers)) * 2 > len(numbers) else float(np.median(numbers))), None, None
    logarithmic = logarithmic and min(numbers) > 0
    x = np.log(numbers) if logarithmic else np.asarray(numbers)
    back = math.exp if logarithmic else float
    middle, n = float(x.mean()), len(numbers)
    if n < MIN_ROUNDS:
        return back(middle), None, None
    half = t_half(n - 1) * float(x.std(ddof=1)) / n**0.5
    return back(middle), back(middle - half), back(middle + half)
