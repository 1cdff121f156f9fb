"""Prometheus metrics: of requests, from their records, and of the engine, from its `Stats`.

A metric has vLLM's name if its meaning is the same; else its name begins with `drut_`. METRICS declares all of them;
docs/metrics.md lists them, and a test compares.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from drut.config import EngineConfig
from drut.engine.service.async_engine import AsyncEngine
from drut.engine.service.messages import PageStats, Stats
from drut.kernels.kv import PAGE_TOKENS
from drut.observe.histogram import Histogram, spread
from drut.server.admission.admission import AdmissionControl
from drut.server.admission.request_record import FAILURES, RequestRecord
from drut.server.http.gate import ConnectionGate


class Described(NamedTuple):
    """The kind of a metric, its help, and its labels in addition to `model_name`."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


METRICS = {
    "vllm:time_to_first_token_seconds": Described("histogram", "time from a request's arrival to its first token"),
    "vllm:inter_token_latency_seconds": Described("histogram", "time between two consecutive tokens of a choice"),
    "vllm:request_time_per_output_token_seconds": Described(
        "histogram", "time from a choice's first token to its last, divided by the tokens after the first"),
    "vllm:e2e_request_latency_seconds": Described("histogram", "time from a request's arrival to its end"),
    "vllm:request_queue_time_seconds": Described(
        "histogram", "time from a request's arrival until the engine first computed a part of it"),
    "vllm:request_prefill_time_seconds": Described("histogram", "time from the end of the queue to the first token"),
    "vllm:request_decode_time_seconds": Described("histogram", "time from the first token to the last"),
    "vllm:request_inference_time_seconds": Described("histogram", "time from the end of the queue to the last token"),
    "vllm:request_prompt_tokens": Described("histogram", "prompt tokens of a request"),
    "vllm:request_prefill_kv_computed_tokens": Described(
        "histogram", "prompt tokens of a request that were not in the prefix cache"),
    "vllm:request_generation_tokens": Described("histogram", "tokens of all choices of a request, as in `usage`"),
    "vllm:request_max_num_generation_tokens": Described("histogram", "tokens of the longest choice of a request"),
    "vllm:request_params_n": Described("histogram", "number of choices requested"),
    "vllm:request_params_max_tokens": Described(
        "histogram", "maximum tokens per choice requested, limited by the context length"),
    "vllm:request_success": Described("counter", "finished requests, by finish reason", ("finished_reason",)),
    "drut_request_failures": Described(
        "counter", "requests that failed, by reason; only `error` is a fault of the server", ("reason",)),
    "vllm:prompt_tokens": Described(
        "counter", "prompt tokens of requests with at least one output token, cached tokens included"),
    "vllm:prompt_tokens_cached": Described("counter", "prompt tokens of these requests found in the prefix cache"),
    "vllm:generation_tokens": Described("counter", "tokens of all choices, as in `usage`"),
    "vllm:num_requests_running": Described("gauge", "sequences in the engine's batch"),
    "vllm:num_requests_waiting": Described("gauge", "requests that wait, before the engine or inside it"),
    "drut_requests_waiting": Described(
        "gauge", "waiting requests by reason: `queue` is the queue before the engine, the others are inside it",
        ("reason",)),
    "drut_queue_tokens": Described("gauge", "prompt tokens in the queue before the engine"),
    "vllm:kv_cache_usage_perc": Described(
        "gauge", "share of KV pages in use by requests, 0 to 1; the maximum over the KV groups"),
    "vllm:cache_config_info": Described(
        "gauge", "always 1; its labels are the KV cache's settings: tokens per page, format, pages, prefix cache",
        ("block_size", "cache_dtype", "num_gpu_blocks", "enable_prefix_caching")),
    "drut_kv_pages": Described(
        "gauge", "KV pages by state: free, own (in use by one request), cached (in the prefix cache)", ("state",)),
    "drut_kv_window_pages": Described(
        "gauge", "KV pages of sliding-window layers by state, if other layers keep the whole context", ("state",)),
    "vllm:num_preemptions": Described("counter", "preemptions of running requests"),
    "drut_preemptions": Described(
        "counter", "preemptions by reason: no free pages (`pages`), the scheduling policy (`policy`), a failed step "
                   "(`other`)", ("reason",)),
    "drut_expected_tokens": Described(
        "gauge", "expected number of tokens that running sequences will still generate, from the median of each"),
    "vllm:prefix_cache_queries": Described("counter", "prompt tokens looked up in the prefix cache"),
    "vllm:prefix_cache_hits": Described("counter", "prompt tokens found in the prefix cache"),
    "drut_prefix_cache_evicted_misses": Described(
        "counter", "prompt tokens not found in the prefix cache because they were evicted"),
    "drut_evicted_pages": Described("counter", "pages evicted from the prefix cache"),
    "vllm:spec_decode_num_drafts": Described("counter", "verifications of drafts", ("method",)),
    "vllm:spec_decode_num_draft_tokens": Described("counter", "verified drafts", ("method",)),
    "vllm:spec_decode_num_accepted_tokens": Described("counter", "accepted drafts", ("method",)),
    "vllm:spec_decode_num_accepted_tokens_per_pos": Described(
        "counter", "accepted drafts by their position", ("method", "position")),
    "drut_expert_tokens": Described(
        "counter", "tokens computed by all experts of a layer; a token counts once for each expert it is routed to",
        ("layer",)),
    "drut_busiest_expert_tokens": Described(
        "counter", "tokens computed by the busiest expert of a layer; with an even load, `drut_expert_tokens` divided "
                   "by the number of experts", ("layer",)),
    "drut_steps": Described("counter", "engine steps"),
    "drut_step_rows": Described("counter", "tokens computed by all steps"),
    "drut_compiled_grammars": Described("counter", "compiled grammars, including those that failed"),
    "drut_failed_steps": Described("counter", "steps that raised an exception"),
    "vllm:iteration_tokens_total": Described("histogram", "tokens computed by a step"),
    "drut_step_seconds": Described("histogram", "time of a step"),
    "drut_step_floor_seconds": Described("counter", "minimum time of the steps by this machine's roof"),
    "drut_roof_share": Described(
        "gauge", "minimum time divided by actual time of the steps of about the last second"),
    "drut_last_step_age_seconds": Described("gauge", "time since the last step ended"),
    "drut_engine_up": Described("gauge", "1 while the engine runs with its model loaded, else 0"),
    "drut_http_replies": Described("counter", "HTTP replies by status", ("status",)),
    "drut_connections": Described("gauge", "open connections"),
    "drut_connections_refused": Described(
        "counter", "refused connections by the limit reached: `total` or `address`", ("reason",)),
}
Labels = tuple[str, ...]
Value = Histogram | Mapping[str, int] | Mapping[Labels, int] | float  # the keys of a mapping are values of labels
KINDS: dict[str, Callable[..., Any]] = {
    "histogram": HistogramMetricFamily, "counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
SECONDS = spread(1e-3, 500.0)  # of requests
GAPS = spread(1e-4, 10.0, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))  # between tokens, where small differences count
TOKENS = spread(1.0, 1e6)
HISTOGRAMS = {name: SECONDS if name.endswith("_seconds") else TOKENS for name, m in METRICS.items()
              if m.kind == "histogram" and name not in ("drut_step_seconds", "vllm:iteration_tokens_total")} | {
    "vllm:inter_token_latency_seconds": GAPS, "vllm:request_time_per_output_token_seconds": GAPS}  # of requests
GOOD = ("stop", "length", "abort")  # finish reasons that are no failure


class Metrics(Collector):
    """The metrics of a server, with a registry of its own; an observer of its requests. Use it in the event loop.

    The engine's metrics are left out until its stats have arrived.
    """

    def __init__(self, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`model`: the value of the label `model_name`."""
        self._model, self._clock = model, clock
        self._histograms = {name: Histogram(bounds) for name, bounds in HISTOGRAMS.items()}
        self._ttft = self._histograms["vllm:time_to_first_token_seconds"]
        self._itl = self._histograms["vllm:inter_token_latency_seconds"]
        self._ends: Counter[str] = Counter(dict.fromkeys(GOOD, 0))
        self._failures: Counter[str] = Counter(dict.fromkeys(FAILURES, 0))
        self._tokens: Counter[str] = Counter()
        self._admission: AdmissionControl | None = None
        self._config = EngineConfig()
        self._replies: Counter[str] = Counter()
        self._up = False
        self.gate: ConnectionGate | None = None  # counts the connections
        self._stats: tuple[Stats, float] | None = None  # with their arrival time
        self._roof_share: float | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def watch(self, admission: AdmissionControl, engine: AsyncEngine, config: EngineConfig) -> None:
        """Sets the queue, the engine and the settings that the gauges report."""
        self._admission, self._up, self._config = admission, True, config
        engine.on_death(self._on_death)

    def _on_death(self, reason: str) -> None:
        self._up, self._stats, self._roof_share = False, None, None

    def update_stats(self, stats: Stats) -> None:
        """Takes the engine's latest stats."""
        if self._stats is not None:
            self._roof_share = roof_share(self._stats[0], stats) or self._roof_share
        self._stats = stats, self._clock()

    def count_reply(self, status: int) -> None:
        """Counts an HTTP reply."""
        self._replies[str(status)] += 1

    def first_token(self, record: RequestRecord) -> None:
        """Counts a request's time to first token."""
        self._ttft.add(record.ttft_s or 0.0)

    def generated(self, count: int) -> None:
        """Counts `count` tokens of a choice."""
        self._tokens["vllm:generation_tokens"] += count

    def gap(self, gap_s: float, count: int) -> None:
        """Counts the gap before each of `count` tokens of a choice."""
        self._itl.add(gap_s, count)

    def observe(self, record: RequestRecord) -> None:
        """Counts a request that has ended."""
        good = record.finish_reason in GOOD
        (self._ends if good else self._failures)[record.finish_reason] += 1
        if record.finish_reason == "rejected":
            return
        times = {"e2e_request_latency": record.e2e_s, "request_queue_time": record.queue_s,
                 "request_prefill_time": record.prefill_s, "request_decode_time": record.decode_s,
                 "request_inference_time": record.inference_s}
        for name, seconds in times.items():
            if seconds is not None:
                self._histograms[f"vllm:{name}_seconds"].add(seconds)
        for seconds in record.tpots:
            self._histograms["vllm:request_time_per_output_token_seconds"].add(seconds)
        self._histograms["vllm:request_params_n"].add(record.choices)
        if record.params is not None:
            self._histograms["vllm:request_params_max_tokens"].add(record.params.max_tokens)
        if record.first_token is not None:
            counts = {"prompt": record.prompt_tokens, "generation": record.completion_tokens,
                      "max_num_generation": record.longest,
                      "prefill_kv_computed": record.prompt_tokens - record.cached_tokens}
            for name, count in counts.items():
                self._histograms[f"vllm:request_{name}_tokens"].add(count)
            self._tokens["vllm:prompt_tokens"] += record.prompt_tokens
            self._tokens["vllm:prompt_tokens_cached"] += record.cached_tokens

    def render(self) -> tuple[str, bytes]:
        """Returns the content type and the text of a scrape's reply."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yields every metric that has a value now, in the order of METRICS."""
        values = self._values()
        for name, described in METRICS.items():
            if name not in values:
                continue
            family = KINDS[described.kind](name, described.help, labels=("model_name", *described.labels))
            value = values[name]
            if isinstance(value, Histogram):
                _fill(family, self._model, value)
            elif isinstance(value, Mapping):
                for label, part in value.items():
                    family.add_metric((self._model, *((label,) if isinstance(label, str) else label)), part)
            else:
                family.add_metric((self._model,), value)
            yield family

    def _values(self) -> dict[str, Value]:
        values: dict[str, Value] = {
            **self._histograms, "vllm:request_success": dict(self._ends),
            "drut_request_failures": dict(self._failures), "drut_engine_up": float(self._up),
            "drut_http_replies": dict(self._replies),
            **{name: self._tokens[name] for name in (
                "vllm:prompt_tokens", "vllm:prompt_tokens_cached", "vllm:generation_tokens")}}
        queued = self._admission.waiting if self._admission else 0
        if self._admission:
            values["drut_queue_tokens"] = self._admission.waiting_tokens
        if self.gate is not None:
            values |= {"drut_connections": self.gate.open, "drut_connections_refused": dict(self.gate.refused)}
        if self._stats is not None:
            stats, at = self._stats
            values |= _engine_values(stats, queued)
            config = self._config
            settings: Labels = (str(PAGE_TOKENS), config.kv_dtype, str(stats.pages), str(config.prefix_cache))
            values["vllm:cache_config_info"] = {settings: 1}
            if self._roof_share is not None:
                values["drut_roof_share"] = self._roof_share
            values["drut_last_step_age_seconds"] = stats.idle_s + self._clock() - at
        return values


def roof_share(before: Stats, after: Stats) -> float | None:
    """Returns the roofline time divided by the actual time of the steps between two stats; None without a roof or a
    step."""
    seconds = after.step_seconds - before.step_seconds
    if before.floor_seconds is None or after.floor_seconds is None or seconds <= 0:
        return None
    return (after.floor_seconds - before.floor_seconds) / seconds


def _engine_values(stats: Stats, queued: int) -> dict[str, Value]:
    steps = Histogram.of(stats.step_bounds, stats.step_counts, stats.step_seconds)
    rows = Histogram.of(stats.row_bounds, stats.row_counts, stats.rows)
    first = PageStats(stats.pages, stats.free_pages, stats.cached_pages, stats.evictable_pages)
    windows = sum((Counter(pages.by_state) for pages in stats.window_pages), Counter[str]())
    layers = stats.expert_tokens.items()
    experts = {"drut_expert_tokens": {str(layer): tokens for layer, (tokens, _) in layers},
               "drut_busiest_expert_tokens": {str(layer): most for layer, (_, most) in layers}} if layers else {}
    accepted: dict[Labels, int] = {
        (m, str(i)): n for m, d in stats.drafts.items() for i, n in enumerate(d.accepted)}
    drafts: dict[str, Value] = {
        "vllm:spec_decode_num_drafts": {m: d.verifications for m, d in stats.drafts.items()},
        "vllm:spec_decode_num_draft_tokens": {m: d.drafted for m, d in stats.drafts.items()},
        "vllm:spec_decode_num_accepted_tokens": {m: sum(d.accepted) for m, d in stats.drafts.items()},
        "vllm:spec_decode_num_accepted_tokens_per_pos": accepted,
    } if stats.drafts else {}
    floor = {} if stats.floor_seconds is None else {"drut_step_floor_seconds": stats.floor_seconds}
    return {
        **floor, **experts, **drafts,
        "vllm:num_requests_running": stats.running,
        "vllm:num_requests_waiting": queued + sum(stats.waiting.values()),
        "drut_requests_waiting": {"queue": queued, **stats.waiting},
        "vllm:kv_cache_usage_perc": max(pages.held / pages.total for pages in (first, *stats.window_pages)),
        "drut_kv_pages": first.by_state,
        **({"drut_kv_window_pages": {state: windows[state] for state in first.by_state}} if stats.window_pages else {}),
        "vllm:num_preemptions": sum(stats.preemptions.values()),
        "drut_preemptions": stats.preemptions, "drut_expected_tokens": stats.expected_tokens,
        "vllm:prefix_cache_queries": stats.queried_tokens,
        "vllm:prefix_cache_hits": stats.hit_tokens, "drut_prefix_cache_evicted_misses": stats.evicted_miss_tokens,
        "drut_evicted_pages": stats.evicted_pages, "drut_steps": stats.steps, "drut_step_rows": stats.rows,
        "drut_compiled_grammars": stats.compiled_grammars,
        "drut_failed_steps": stats.failed_steps, "drut_step_seconds": steps, "vllm:iteration_tokens_total": rows}


def _fill(family: HistogramMetricFamily, model: str, histogram: Histogram) -> None:
    """Fills `family` with cumulative buckets, as Prometheus requires."""
    buckets, below = [], 0
    for bound, count in zip([*map(repr, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        below += count
        buckets.append((bound, below))
    family.add_metric((model,), buckets=buckets, sum_value=histogram.total)
