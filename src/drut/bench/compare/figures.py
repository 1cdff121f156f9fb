"""The figures that runs are compared by: which there are, which way is better, and where they stand in a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from drut.bench.metrics.distribution import Figure
from drut.bench.report.schema import Result


class Kind(NamedTuple):
    """A figure. `of` takes it from a result."""

    title: str
    unit: str
    better: Literal["more", "less"]
    of: Callable[[Result], Figure]


FIGURES: dict[str, Kind] = {
    "output_tokens_per_s": Kind("Output", "tokens/s", "more", lambda r: r.summary.output_tokens_per_s),
    "input_tokens_per_s": Kind("Input", "tokens/s", "more", lambda r: r.summary.input_tokens_per_s),
    "requests_per_s": Kind("Requests", "1/s", "more", lambda r: r.summary.requests_per_s),
    "goodput_per_s": Kind("Goodput", "1/s", "more", lambda r: r.summary.goodput_per_s),
    "ttft_ms_p50": Kind("TTFT, median", "ms", "less", lambda r: r.summary.ttft_ms.p50),
    "ttft_ms_p99": Kind("TTFT, p99", "ms", "less", lambda r: r.summary.ttft_ms.p99),
    "tpot_ms_p50": Kind("TPOT, median", "ms", "less", lambda r: r.summary.tpot_ms.p50),
    "tpot_ms_p99": Kind("TPOT, p99", "ms", "less", lambda r: r.summary.tpot_ms.p99),
    "itl_ms_p99": Kind("ITL, p99", "ms", "less", lambda r: r.summary.itl_ms.p99),
    "e2e_ms_p50": Kind("E2E, median", "ms", "less", lambda r: r.summary.e2e_ms.p50),
    "e2e_ms_p99": Kind("E2E, p99", "ms", "less", lambda r: r.summary.e2e_ms.p99),
    "error_rate": Kind("Failed", "share", "less", lambda r: r.summary.errors.rate),
    "cached_share": Kind("Cached input", "share", "more", lambda r: r.summary.cached_share),
}
