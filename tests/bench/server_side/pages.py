"""Pages as each engine writes them, by hand from the names in their sources: some series, some of the noise between."""

from __future__ import annotations

from collections.abc import Sequence


def histogram(name: str, labels: str, bounds: Sequence[float], values: Sequence[float]) -> str:
    """A histogram of some values, its lines as prometheus_client writes them."""
    comma = f"{labels}," if labels else ""
    lines = [f"# HELP {name} of something", f"# TYPE {name} histogram"]
    for bound in (*bounds, float("inf")):
        count = sum(value <= bound for value in values)
        lines.append(f'{name}_bucket{{{comma}le="{"+Inf" if bound == float("inf") else bound}"}} {float(count)}')
    braces = f"{{{labels}}}" if labels else ""
    return "\n".join([*lines, f"{name}_count{braces} {float(len(values))}", f"{name}_sum{braces} {sum(values)}", ""])


PYTHON = """# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 1873.0
# HELP process_resident_memory_bytes Resident memory size in bytes.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1.27e+09
"""


def vllm(scale: int = 1) -> str:
    """`scale` times some work; two engines, whose numbers add up."""
    text = PYTHON
    for engine, share in (("0", 1), ("1", 2)):
        labels = f'engine="{engine}",model_name="m"'
        work = scale * share
        text += f"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{labels}}} {3.0 * share}
vllm:num_requests_waiting{{{labels}}} {1.0 * share}
vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} 900.0
vllm:kv_cache_usage_perc{{{labels}}} 0.125
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{{labels}}} {1000.0 * work}
vllm:prefix_cache_queries_created{{{labels}}} 1.7e+09
vllm:prefix_cache_hits_total{{{labels}}} {250.0 * work}
vllm:num_preemptions_total{{{labels}}} {1.0 * work}
vllm:prompt_tokens_total{{{labels}}} {1000.0 * work}
vllm:generation_tokens_total{{{labels}}} {500.0 * work}
"""
        first = [0.05] * (9 * work) + [0.5] * work
        text += histogram("vllm:time_to_first_token_seconds", labels, [0.01, 0.1, 1.0], first)
        text += histogram("vllm:inter_token_latency_seconds", labels, [0.01, 0.025], [0.02] * (40 * work))
        text += histogram("vllm:request_time_per_output_token_seconds", labels, [0.01, 0.025], [0.02] * (10 * work))
        text += histogram("vllm:e2e_request_latency_seconds", labels, [0.3, 1.0], [0.5] * (10 * work))
        text += histogram("vllm:request_queue_time_seconds", labels, [0.3, 1.0], [0.001] * (10 * work))
    return text


SGLANG = PYTHON + """# HELP sglang:prompt_tokens_total Number of prefill tokens processed.
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m",is_streaming="true"} 3.128902e+03
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="m"} 700.0
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{model_name="m",cache_source="device"} 600.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 100.0
sglang:num_retracted_requests_total{model_name="m"} 2.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",tp_rank="0"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.0075
sglang:num_running_reqs{model_name="m"} 5.0
sglang:num_queue_reqs{model_name="m"} 4.0
""" + histogram("sglang:time_to_first_token_seconds", 'model_name="m",is_streaming="true"', [0.1, 0.2], [0.15] * 4) \
    + histogram("sglang:inter_token_latency_seconds", 'model_name="m"', [0.002, 0.004], [0.003] * 9) \
    + histogram("sglang:e2e_request_latency_seconds", 'model_name="m"', [0.4], [0.5] * 4) \
    + histogram("sglang:queue_time_seconds", 'model_name="m"', [0.1], [0.0] * 4)

LLAMA_CPP = """# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 300
# HELP llamacpp:prompt_tokens_cached_total Number of prompt tokens taken from the cache.
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 100
# TYPE llamacpp:prompt_seconds_total counter
llamacpp:prompt_seconds_total 1.25
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 88
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 1
"""

TENSORRT_LLM = PYTHON + """# TYPE trtllm_prompt_tokens_total counter
trtllm_prompt_tokens_total{engine_type="trtllm",model_name="m"} 40.0
trtllm_prompt_cached_tokens_total{engine_type="trtllm",model_name="m"} 16.0
trtllm_generation_tokens_total{engine_type="trtllm",model_name="m"} 20.0
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.5
trtllm_kv_cache_reused_blocks_total{engine_type="trtllm",model_name="m"} 1.0
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 1.0
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 0.0
""" + "".join(histogram(f"trtllm_{name}", 'model_name="m"', [0.01, 0.1], [0.05] * 2) for name in (
    "time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds",
    "request_queue_time_seconds"))

TGI = """# TYPE tgi_queue_size gauge
tgi_queue_size 3
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 5
# TYPE tgi_request_count counter
tgi_request_count 7

""" + histogram("tgi_request_input_length", "", [10.0, 100.0], [50.0] * 6) \
    + histogram("tgi_request_generated_tokens", "", [10.0, 100.0], [20.0] * 6) \
    + histogram("tgi_request_duration", 'method="generate"', [0.1, 1.0], [0.5] * 6) \
    + histogram("tgi_request_queue_duration", "", [0.1, 1.0], [0.01] * 6) \
    + histogram("tgi_request_mean_time_per_token_duration", "", [0.01, 0.1], [0.02] * 6)

LMDEPLOY = PYTHON + """# TYPE lmdeploy:prompt_tokens_total counter
lmdeploy:prompt_tokens_total{engine="0",model_name="m"} 9.0
lmdeploy:generation_tokens_total{engine="0",model_name="m"} 8.0
lmdeploy:num_requests_running{engine="0",model_name="m"} 2.0
lmdeploy:num_requests_waiting{engine="0",model_name="m"} 1.0
lmdeploy:gpu_cache_usage_perc{engine="0",model_name="m"} 0.75
""" + "".join(histogram(f"lmdeploy:{name}", 'engine="0"', [0.01, 0.1], [0.05] * 2) for name in (
    "time_to_first_token_seconds", "iter_token_latency", "time_per_output_token_seconds",
    "e2e_request_latency_seconds", "request_queue_time_seconds"))

ENGINES = {"vllm": vllm(), "sglang": SGLANG, "llama.cpp": LLAMA_CPP, "tensorrt-llm": TENSORRT_LLM, "tgi": TGI,
           "lmdeploy": LMDEPLOY, "drut": vllm() + "drut_kv_pages_free 3\n"}
