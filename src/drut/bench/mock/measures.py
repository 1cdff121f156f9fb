"""The mock's Prometheus metrics, under vLLM's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
WHOLE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)

HISTOGRAMS = {
    "time_to_first_token_seconds": TTFT,
    "inter_token_latency_seconds": TOKEN,
    "request_time_per_output_token_seconds": TOKEN,
    "e2e_request_latency_seconds": WHOLE,
    "request_queue_time_seconds": WHOLE,
}
COUNTERS = ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits", "num_preemptions",
            "request_success")
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


class MockLoad(Protocol):
    """Provides the present number of requests."""

    @property
    def running(self) -> int:
        """Returns the number of requests in service."""

    @property
    def waiting(self) -> int:
        """Returns the number of requests that wait for a slot."""

    @property
    def use(self) -> float:
        """Returns the share of the slots in use; 0 if there is no limit."""


class Measures:
    """The counters and histograms of one server."""

    def __init__(self, model: str, load: MockLoad) -> None:
        self._labels, self._load = [model, "0"], load
        self._counts = {name: np.zeros(len(bounds) + 1) for name, bounds in HISTOGRAMS.items()}
        self._sums = dict.fromkeys(HISTOGRAMS, 0.0)
        self._totals = dict.fromkeys(COUNTERS, 0.0)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def add(self, counter: str, amount: float = 1.0) -> None:
        """Increases a counter."""
        self._totals[counter] += amount

    def observe(self, histogram: str, seconds: list[float]) -> None:
        """Adds durations to a histogram."""
        places = np.searchsorted(HISTOGRAMS[histogram], seconds, side="left")
        self._counts[histogram] += np.bincount(places, minlength=len(self._counts[histogram]))
        self._sums[histogram] += sum(seconds)

    def text(self) -> bytes:
        """Returns the page at /metrics."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yields the metrics for a registry."""
        names = ["model_name", "engine"]
        for name, total in self._totals.items():
            counter = CounterMetricFamily(f"vllm:{name}", name, labels=names)
            counter.add_metric(self._labels, total)
            yield counter
        now = (self._load.running, self._load.waiting, self._load.use)
        for name, value in zip(GAUGES, now, strict=True):
            gauge = GaugeMetricFamily(f"vllm:{name}", name, labels=names)
            gauge.add_metric(self._labels, value)
            yield gauge
        for name, counts in self._counts.items():
            bounds = [*map(str, HISTOGRAMS[name]), "+Inf"]
            histogram = HistogramMetricFamily(f"vllm:{name}", name, labels=names)
            buckets = list(zip(bounds, np.cumsum(counts).tolist(), strict=True))
            histogram.add_metric(self._labels, buckets=buckets, sum_value=self._sums[name])
            yield histogram
