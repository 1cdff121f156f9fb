"""Maps the metrics of each engine to the quantities of a benchmark, with notes where definitions differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

HISTOGRAMS = ("ttft", "itl", "tpot", "e2e", "queue_time")
COUNTERS = ("prompt_tokens", "generation_tokens", "prefix_query_tokens", "prefix_hit_tokens", "preemptions")
GAUGES = ("running", "waiting", "kv_use")


@dataclass(frozen=True)
class MetricSource:
    """The source of a quantity: the first existing one of `names`. Names joined by `+` are added."""

    names: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True)
class EngineMetrics:
    """An engine, identified by the prefix of its metric names."""

    name: str
    prefix: str
    sources: dict[str, MetricSource] = field(default_factory=dict)


def _sources(**names: str | MetricSource) -> dict[str, MetricSource]:
    return {key: name if isinstance(name, MetricSource) else MetricSource((name,)) for key, name in names.items()}


_VLLM = _sources(
    ttft="vllm:time_to_first_token_seconds",
    itl=MetricSource(("vllm:inter_token_latency_seconds",),
                     "one sample an engine step and request: a step that brings several tokens counts once"),
    tpot="vllm:request_time_per_output_token_seconds",
    e2e="vllm:e2e_request_latency_seconds",
    queue_time="vllm:request_queue_time_seconds",
    prompt_tokens="vllm:prompt_tokens_total",
    generation_tokens="vllm:generation_tokens_total",
    prefix_query_tokens="vllm:prefix_cache_queries_total",
    prefix_hit_tokens="vllm:prefix_cache_hits_total",
    preemptions="vllm:num_preemptions_total",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_use=MetricSource(("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
)

ENGINES = (
    EngineMetrics("drut", "drut_", _VLLM | _sources(itl="vllm:inter_token_latency_seconds")),  # one sample per token
    EngineMetrics("vllm", "vllm:", _VLLM),
    EngineMetrics("sglang", "sglang:", _sources(
        ttft=MetricSource(("sglang:time_to_first_token_seconds",), "requests that do not stream count too"),
        itl=MetricSource(("sglang:inter_token_latency_seconds",),
                         "one sample a token: the time between two outputs, shared by the tokens of the second"),
        e2e="sglang:e2e_request_latency_seconds",
        queue_time="sglang:queue_time_seconds",
        prompt_tokens="sglang:prompt_tokens_total",
        generation_tokens="sglang:generation_tokens_total",
        prefix_query_tokens="sglang:prompt_tokens_total",
        prefix_hit_tokens=MetricSource(("sglang:cached_tokens_total",), "of all tiers of the cache"),
        preemptions=MetricSource(("sglang:num_retracted_requests_total",), "called retractions"),
        running="sglang:num_running_reqs",
        waiting=MetricSource(("sglang:num_queue_reqs",), "without those that wait for a grammar"),
        kv_use="sglang:token_usage",
    )),
    EngineMetrics("llama.cpp", "llamacpp:", _sources(
        prompt_tokens=MetricSource(("llamacpp:prompt_tokens_total+llamacpp:prompt_tokens_cached_total",
                                    "llamacpp:prompt_tokens_total"), "older servers omit the cached ones"),
        generation_tokens="llamacpp:tokens_predicted_total",
        prefix_query_tokens="llamacpp:prompt_tokens_total+llamacpp:prompt_tokens_cached_total",
        prefix_hit_tokens="llamacpp:prompt_tokens_cached_total",
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        kv_use=MetricSource(("llamacpp:kv_cache_usage_ratio",), "older servers only"),
    )),
    EngineMetrics("tensorrt-llm", "trtllm_", _sources(
        ttft="trtllm_time_to_first_token_seconds",
        tpot="trtllm_time_per_output_token_seconds",
        e2e="trtllm_e2e_request_latency_seconds",
        queue_time="trtllm_request_queue_time_seconds",
        prompt_tokens="trtllm_prompt_tokens_total",
        generation_tokens="trtllm_generation_tokens_total",
        prefix_query_tokens="trtllm_prompt_tokens_total",
        prefix_hit_tokens="trtllm_prompt_cached_tokens_total",
        running="trtllm_num_requests_running",
        waiting="trtllm_num_requests_waiting",
        kv_use="trtllm_kv_cache_utilization",
    )),
    EngineMetrics("tgi", "tgi_", _sources(
        tpot=MetricSource(("tgi_request_mean_time_per_token_duration",), "includes the first token"),
        e2e="tgi_request_duration",
        queue_time="tgi_request_queue_duration",
        prompt_tokens="tgi_request_input_length_sum",
        generation_tokens="tgi_request_generated_tokens_sum",
        running=MetricSource(("tgi_batch_current_size",), "requests of the current batch"),
        waiting="tgi_queue_size",
    )),
    EngineMetrics("lmdeploy", "lmdeploy:", _sources(
        ttft="lmdeploy:time_to_first_token_seconds",
        itl=MetricSource(("lmdeploy:iter_token_latency",), "one sample an output: several tokens may count once"),
        tpot="lmdeploy:time_per_output_token_seconds",
        e2e="lmdeploy:e2e_request_latency_seconds",
        queue_time="lmdeploy:request_queue_time_seconds",
        prompt_tokens="lmdeploy:prompt_tokens_total",
        generation_tokens="lmdeploy:generation_tokens_total",
        running="lmdeploy:num_requests_running",
        waiting="lmdeploy:num_requests_waiting",
        kv_use="lmdeploy:gpu_cache_usage_perc",
    )),
)


def detect(names: Iterable[str]) -> EngineMetrics | None:
    """Returns the engine that has most of the names; drut if any name is its own, because it also uses vLLM's."""
    names = list(names)
    counts = [sum(name.startswith(engine.prefix) for name in names) for engine in ENGINES]
    if counts[0]:
        return ENGINES[0]
    return ENGINES[counts.index(max(counts))] if any(counts) else None
