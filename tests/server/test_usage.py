"""The counters of a real server against the `usage` of its replies."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.rig import Running

COUNTS = ("vllm:generation_tokens_total", "vllm:request_generation_tokens_sum", "vllm:prompt_tokens_total",
          "vllm:request_prompt_tokens_sum", "vllm:request_max_num_generation_tokens_sum", "vllm:request_params_n_sum",
          "vllm:time_to_first_token_seconds_count", "vllm:request_success_total")
FAULTS = ("drut_failed_steps_total", "drut_request_failures_total{error}", "drut_http_replies_total{500}",
          "drut_http_replies_total{503}")
SEVERAL = {"max_tokens": 8, "ignore_eos": True, "temperature": 1}


def counts(server: Running) -> dict[str, float]:
    """Samples by name, and by name and label; those of one name are added up too."""
    found: dict[str, float] = dict.fromkeys(FAULTS, 0.0)
    for family in text_string_to_metric_families(server.get("/metrics").raw.decode()):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
            label = sample.labels.get("reason") or sample.labels.get("status") or sample.labels.get("finished_reason")
            found[f"{sample.name}{{{label}}}"] = sample.value
    return found


ASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "choices": ("/v1/completions", {"prompt": "hello", "n": 5} | SEVERAL),
    "one token each": ("/v1/completions", {"prompt": "hello", "n": 3, "max_tokens": 1, "temperature": 1}),
    "prompts": ("/v1/completions", {"prompt": ["hello", "hi"], "n": 3} | SEVERAL),
    "streamed": ("/v1/completions", {"prompt": ["hello", "hi"], "n": 2, "stream": True,
                                     "stream_options": {"include_usage": True}} | SEVERAL),
    "scored": ("/v1/completions", {"prompt": "hello", "echo": True, "max_tokens": 0, "logprobs": 1}),
    "echoed": ("/v1/completions", {"prompt": "hello", "echo": True, "n": 2, "logprobs": 1} | SEVERAL),
    "stopped": ("/v1/completions", {"prompt": "hello", "n": 4, "max_tokens": 40, "temperature": 1.5, "seed": 3,
                                    "stop": ["a", "e", "z"]}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "n": 3} | SEVERAL),
}


@pytest.mark.parametrize("name", ASKS)
def test_counters_are_the_usage(server: Running, name: str) -> None:
    path, body = ASKS[name]
    server.until_idle()
    before = counts(server)
    reply = server.post(path, body)
    assert reply.status == 200, reply.raw
    usage = (reply.events[-2] if body.get("stream") else reply.json)["usage"]
    server.until_idle()
    after = counts(server)
    rise = {name: after[name] - before[name] for name in COUNTS}
    prompts = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1
    assert rise["vllm:generation_tokens_total"] == usage["completion_tokens"]
    assert rise["vllm:request_generation_tokens_sum"] == usage["completion_tokens"]
    assert rise["vllm:prompt_tokens_total"] == rise["vllm:request_prompt_tokens_sum"] == usage["prompt_tokens"]
    assert rise["vllm:request_params_n_sum"] == prompts * body.get("n", 1)
    assert rise["vllm:time_to_first_token_seconds_count"] == rise["vllm:request_success_total"] == prompts


CLIENT_ERRORS: dict[str, tuple[int, str, Any]] = {
    "no JSON": (400, "/v1/completions", b"{"),
    "nested too deeply": (400, "/v1/completions", b'{"prompt":' + b"[" * 100_000),
    "a wrong type": (400, "/v1/chat/completions", {"messages": 3}),
    "a lone surrogate": (400, "/v1/completions", b'{"prompt": "\\ud800"}'),
    "another model": (404, "/v1/completions", {"model": "other", "prompt": "x"}),
    "too long a prompt": (400, "/v1/completions", {"prompt": [1] * 5000}),
    "too long a text": (400, "/v1/completions", {"prompt": "x" * 5000}),
    "an id outside the vocabulary": (400, "/v1/completions", {"prompt": [1 << 20]}),
    "a bias outside it": (400, "/v1/completions", {"prompt": "x", "logit_bias": {"99999": 1}}),
    "an image": (400, "/v1/chat/completions", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}),
    "a grammar that never ends": (400, "/v1/completions", {
        "prompt": "a", "structured_outputs": {"grammar": "root ::= root"}}),
    "a pattern without a text": (400, "/v1/completions", {
        "prompt": "a", "structured_outputs": {"regex": "[^\\s\\S]"}}),
    "no token left": (400, "/v1/completions", {
        "prompt": "a", "structured_outputs": {"choice": ["b"]}, "stop_token_ids": [98], "min_tokens": 2}),
    "a deadline": (504, "/v1/completions", {
        "prompt": "a", "max_tokens": 100, "ignore_eos": True, "n": 64, "temperature": 1, "deadline_s": 1e-6}),
}


@pytest.mark.parametrize("name", CLIENT_ERRORS)
def test_no_client_error_counts_as_a_fault_of_the_server(server: Running, name: str) -> None:
    status, path, body = CLIENT_ERRORS[name]
    before = counts(server)
    reply = server.post(path, body)
    assert reply.status == status, reply.raw
    server.until_idle()
    after = counts(server)
    assert {name: after[name] for name in FAULTS} == {name: before[name] for name in FAULTS}


def test_a_client_that_hangs_up_is_no_fault_of_the_server(server: Running) -> None:
    before = counts(server)
    for stream in (True, False):
        body = {"prompt": "x", "max_tokens": 100, "ignore_eos": True, "n": 32, "temperature": 1, "stream": stream}
        server.open_stream("/v1/completions", body).close()
    server.open_stream("/v1/completions", {"prompt": "x"} | {"pad": "x" * 100_000}).close()
    server.until_idle()
    after = counts(server)
    assert {name: after[name] for name in FAULTS} == {name: before[name] for name in FAULTS}
