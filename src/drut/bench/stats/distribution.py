"""Percentiles of samples in which a failed request has an infinite value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Figure = float | Literal["inf"] | None
"""A figure as JSON. None: nothing to measure. "inf": a failed request is at this rank. (JSON has no infinity.)"""

PERCENTS = (50, 90, 95, 99)


class Distribution(msgspec.Struct, frozen=True):
    """The distribution of `n` samples, of which `failed` are infinite; `unmeasured` counts successful requests without
    the figure. The mean is over the finite samples."""

    n: int = 0
    failed: int = 0
    unmeasured: int = 0
    mean: float | None = None
    p50: Figure = None
    p90: Figure = None
    p95: Figure = None
    p99: Figure = None

    @classmethod
    def of(cls, samples: Floats | Sequence[float], unmeasured: int = 0, scale: float = 1.0) -> Distribution:
        """Returns the distribution of samples, with failures as infinity; all times `scale`. Raises an error for
        NaN."""
        values = np.sort(np.asarray(samples, np.float64)) * scale
        if not values.size:
            return cls(unmeasured=unmeasured)
        if np.isnan(values[-1]):  # sorting puts NaN last
            raise ValueError("a sample is not a number")
        finite = values[np.isfinite(values)]
        mean = float(finite.mean()) if finite.size else None
        marks = [figure(percentile(values, percent)) for percent in PERCENTS]
        return cls(values.size, values.size - finite.size, unmeasured, mean, *marks)


def percentile(ascending: Floats, percent: int) -> float:
    """Returns the nearest rank: the least sample that `percent` % of all samples do not exceed. It does not
    interpolate, so that it is defined between a number and infinity."""
    rank = -(-percent * len(ascending) // 100)
    return float(ascending[max(rank, 1) - 1])


def figure(value: float | None) -> Figure:
    """Returns the value as it is written to JSON."""
    return "inf" if value is not None and math.isinf(value) else value
