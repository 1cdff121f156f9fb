"""The figures by which runs are compared: their direction, and how to take them from a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from drut.bench.result.schema import Result
from drut.bench.stats.distribution import Figure


class Kind(NamedTuple):
    """A figure. `of` takes it from a result."""

    title: str
    unit: str
    better: Literal["more", "less"]
    of: Callable[[Result], Figure]


def _cpu_s_per_1k(result: Result) -> Figure:
    """Returns the Engine's CPU time's processes per output token of the whole run, warm-up and end included,
    because the CPU time includes them."""
    server = result.watched.resources.server if result.watched else None
    tokens = sum(request.output_tokens or 0 for request in result.requests)
    return None if server is None or not tokens else server.cpu_s * 1e3 / tokens


def _peak_mb(result: Result) -> Figure:
    server = result.watched.resources.server if result.watched else None
    return None if server is None else (server.peak_pss_bytes or server.peak_rss_bytes) / 1e6


def _gpu_share(result: Result) -> Figure:
    gpus = (result.watched.resources.gpus if result.watched else None) or []
    return max((gpu.use_share for gpu in gpus), default=None)


def _gpu_mb(result: Result) -> Figure:
    gpus = (result.watched.resources.gpus if result.watched else None) or []
    return sum(gpu.peak_used_bytes for gpu in gpus) / 1e6 if gpus else None


def _cost(result: Result) -> Figure:
    return None if result.cost is None else result.cost.per_million_output_alone


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
    "cpu_s_per_1k_tokens": Kind("Engine's CPU time", "s/1,000 tokens", "less", _cpu_s_per_1k),
    "peak_mb": Kind("Engine's memory", "MB", "less", _peak_mb),
    "gpu_share": Kind("GPU in use", "share", "less", _gpu_share),
    "gpu_mb": Kind("GPU memory", "MB", "less", _gpu_mb),
    "cost_per_million_output": Kind("Cost of a million output tokens", "", "less", _cost),
    "client_cpu": Kind("Client's busiest process", "share", "less", lambda r: max(r.client.cpu, default=None)),
}

_NOT_COMPARED = ("error_rate", "cached_share", "peak_mb", "gpu_share", "gpu_mb", "client_cpu")
COMPARED = tuple(name for name in FIGURES if name not in _NOT_COMPARED)
"""The figures whose ratio over rounds ranks engines: positive, a property of the engine, and with noise from round to
round, without which the smallest difference would look certain."""
