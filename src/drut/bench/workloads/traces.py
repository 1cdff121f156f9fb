"""Recorded traffic: arrival times and lengths, replayed unchanged or scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from drut.bench.workloads.workload import Workload, WorkloadContext
from drut.config import setting


class TraceArrival(NamedTuple):
    """One recorded request: seconds from the start of the trace, input and output tokens, and ids of its blocks."""

    at_s: float
    input: int
    output: int
    blocks: Sequence[int] = ()


@dataclass(frozen=True)
class Trace(Workload):
    """Options and report that all traces have."""

    stretch: float = setting(1.0, "factor on the times: 2 is half the rate", type=float, least=1e-6, most=1e6)
    max_input: int | None = setting(None, "maximum tokens of a prompt; longer ones are cut (default: as recorded)",
                                    type=int, least=1, most=1 << 20)
    max_output: int | None = setting(None, "maximum tokens of an answer (default: as recorded)", type=int, least=1,
                                     most=1 << 20)

    def report(self, context: WorkloadContext, rows: Sequence[TraceArrival]) -> None:
        """Reports facts of the whole trace as it would be replayed: rows, seconds, rate, burstiness, stretch and
        caps."""
        gaps = np.diff([row.at_s for row in rows])
        context.facts |= {
            "rows": len(rows),
            "repeats": False,
            "stretch": self.stretch,
            "seconds": round(rows[-1].at_s * self.stretch, 3),
            "rate": round(len(rows) / (rows[-1].at_s * self.stretch), 4),
            "gap_cv": round(float(gaps.std() / gaps.mean()), 2),
            "max_input": self.max_input,
            "max_output": self.max_output,
            "rows_past_max_input": sum(self.max_input is not None and row.input > self.max_input for row in rows),
            "rows_past_max_output": sum(self.max_output is not None and row.output > self.max_output for row in rows),
        }
