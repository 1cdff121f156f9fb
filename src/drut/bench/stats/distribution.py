"""Percentiles in which a failure is an infinite wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Figure = float | Literal["inf"] | None
"""None: there is nothing to measure. "inf": a failed request is at this place. (JSON has no infinity.)"""

PERCENTS = (50, 90, 95, 99)


class Distribution(msgspec.Struct, frozen=True):
    """`n` samples, `failed` of them infinite; `unmeasured` requests are over and well and have no such figure. The
    mean is of the finite ones."""

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
        """Of samples, failures among them as infinity; all times `scale`. NaN is refused."""
        values = np.sort(np.asarray(samples, np.float64)) * scale
        if not values.size:
            return cls(unmeasured=unmeasured)
        if np.isnan(values[-1]):  # where sorting puts it
            raise ValueError("a sample is not a number")
        finite = values[np.isfinite(values)]
        mean = float(finite.mean()) if finite.size else None
        marks = [figure(percentile(values, percent)) for percent in PERCENTS]
        return cls(values.size, values.size - finite.size, unmeasured, mean, *marks)


def percentile(ascending: Floats, percent: int) -> float:
    """The nearest rank: the least sample that `percent` % of all samples do not exceed. No interpolation, so that it
    is defined between a number and infinity."""
    rank = -(-percent * len(ascending) // 100)
    return float(ascending[max(rank, 1) - 1])


def figure(value: float | None) -> Figure:
    """As it is written to JSON."""
    return "inf" if value is not None and math.isinf(value) else value
