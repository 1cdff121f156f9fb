"""What is scraped is what happened, counted anew from the moments at which readers had their chunks."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections import Counter
from itertools import pairwise

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from drut.config import EngineConfig
from drut.engine.request.output import Chunk
from drut.engine.request.params import FilledParams
from drut.engine.service.messages import DraftStats, Output, PageStats, Stats
from drut.server.admission import AdmissionControl, AdmissionLimits, ObserverGroup, QueuedRequest, QueueFullError
from drut.server.http.gate import ConnectionGate
from drut.server.metrics import GAPS, METRICS, SECONDS, TOKENS, Metrics
from tests.server.reading import Reading
from tests.server.virtual import FakeEngine, run

STATS = Stats(pages=10, free_pages=3, cached_pages=4, evictable_pages=2, running=5, waiting={"pages": 2, "turn": 1},
              preemptions={"pages": 5, "policy": 2}, expected_tokens=340, queried_tokens=100, hit_tokens=60,
              evicted_miss_tokens=16, evicted_pages=9, steps=30, rows=400, failed_steps=1, idle_s=0.5,
              step_bounds=[0.1, 1.0], step_counts=[10, 15, 5], step_seconds=12.5, floor_seconds=5.0,
              window_pages=[PageStats(20, 5, 12, 1)], expert_tokens={0: (80, 30), 2: (80, 11)}, row_bounds=[1.0, 8.0],
              row_counts=[4, 20, 6], compiled_grammars=7, drafts={"ngram": DraftStats(9, 40, [6, 4, 1])})

# The families that vLLM serves for a model without adapters, images and remote KV.
VLLM = [f"vllm:{name}" for name in (
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info", "prefix_cache_queries",
    "prefix_cache_hits", "num_preemptions", "prompt_tokens", "prompt_tokens_cached", "generation_tokens",
    "request_success", "request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens",
    "request_params_n", "request_params_max_tokens", "request_prefill_kv_computed_tokens", "iteration_tokens_total",
    "time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
    "request_decode_time_seconds", "request_inference_time_seconds", "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens", "spec_decode_num_accepted_tokens_per_pos")]


def scrape(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Values by name and labels other than the model's."""
    kind, text = metrics.render()
    assert kind.startswith("text/plain")
    samples = {}
    for family in text_string_to_metric_families(text.decode()):
        for s in family.samples:
            assert s.labels["model_name"] == "tiny"
            rest = tuple(sorted((k, v) for k, v in s.labels.items() if k != "model_name"))
            samples[s.name, rest] = s.value
    return samples


def check_histogram(samples, name: str, values: list[float], bounds: list[float]) -> None:
    """Each bucket holds what is at most its bound, whatever was rounded at an edge."""
    assert samples[f"{name}_count", ()] == len(values)
    assert samples[f"{name}_sum", ()] == pytest.approx(sum(values))
    for bound in bounds:
        got = samples[f"{name}_bucket", (("le", repr(bound)),)]
        assert sum(v <= bound - 1e-9 for v in values) <= got <= sum(v <= bound + 1e-9 for v in values), (name, bound)
    assert samples[f"{name}_bucket", (("le", "+Inf"),)] == len(values)


async def follow(ticket: Reading, moments: dict[Reading, list[float]]) -> None:
    async for chunk in ticket:
        moments[ticket] += [asyncio.get_running_loop().time()] * len(chunk.token_ids)


def test_histograms_are_the_readers_own_times() -> None:
    async def main() -> None:
        loop, dice, metrics = asyncio.get_running_loop(), random.Random(3), Metrics("tiny")
        engine = FakeEngine(max_seqs=3, step_s=0.013)
        admission = AdmissionControl(engine, AdmissionLimits(max_queue=6), observer=ObserverGroup(metrics),
                                     clock=loop.time)
        metrics.watch(admission, engine, EngineConfig())  # type: ignore[arg-type]
        moments: dict[Reading, list[float]] = {}
        readers, rejected = [], 0
        for i in range(100):
            params = FilledParams(max_tokens=dice.randrange(1, 30))
            try:
                deadline = 0.3 if i % 9 == 0 else None
                ticket = Reading(admission, QueuedRequest([0] * dice.randrange(1, 90), params, deadline_s=deadline))
            except QueueFullError:
                rejected += 1
            else:
                moments[ticket] = []
                readers.append(asyncio.ensure_future(follow(ticket, moments)))
                if i % 7 == 0:
                    loop.call_later(0.3, ticket.cancel)
            await asyncio.sleep(dice.random() * 0.08)
        await asyncio.gather(*readers, return_exceptions=True)

        samples = scrape(metrics)
        said = {t: m for t, m in moments.items() if m}
        assert rejected
        assert len(said) < len(moments)
        firsts = [m[0] - t.record.arrived for t, m in said.items()]
        check_histogram(samples, "vllm:time_to_first_token_seconds", firsts, SECONDS)
        gaps = [b - a for m in moments.values() for a, b in pairwise(m)]
        check_histogram(samples, "vllm:inter_token_latency_seconds", gaps, GAPS)
        whole = {t: m for t, m in said.items() if t.record.finish_reason == "length" and len(m) > 1}
        tpots = [(m[-1] - m[0]) / (len(m) - 1) for m in whole.values()]
        check_histogram(samples, "vllm:request_time_per_output_token_seconds", tpots, GAPS)
        check_histogram(samples, "vllm:request_decode_time_seconds", [m[-1] - m[0] for m in said.values()], SECONDS)
        ends = [t.record.finished - t.record.arrived for t in moments if t.record.finished is not None]
        check_histogram(samples, "vllm:e2e_request_latency_seconds", ends, SECONDS)
        waits = [t.record.admitted - t.record.arrived for t in moments if t.record.admitted is not None]
        check_histogram(samples, "vllm:request_queue_time_seconds", waits, SECONDS)
        check_histogram(samples, "vllm:request_prompt_tokens", [len(t.ticket.ask.prompt) for t in said], TOKENS)
        check_histogram(samples, "vllm:request_generation_tokens", [len(m) for m in said.values()], TOKENS)
        check_histogram(samples, "vllm:request_max_num_generation_tokens", [len(m) for m in said.values()], TOKENS)
        spans = [t.record.last_token - t.record.admitted for t in said
                 if t.record.last_token is not None and t.record.admitted is not None]
        check_histogram(samples, "vllm:request_inference_time_seconds", spans, SECONDS)
        check_histogram(samples, "vllm:request_params_n", [1.0] * len(moments), TOKENS)
        most = [t.ticket.ask.params.max_tokens for t in moments]
        check_histogram(samples, "vllm:request_params_max_tokens", most, TOKENS)
        computed = [len(t.ticket.ask.prompt) - t.record.cached_tokens for t in said]
        check_histogram(samples, "vllm:request_prefill_kv_computed_tokens", computed, TOKENS)
        assert samples["vllm:generation_tokens_total", ()] == sum(map(len, moments.values()))
        assert samples["vllm:prompt_tokens_total", ()] == sum(len(t.ticket.ask.prompt) for t in said)
        reasons = Counter(t.record.finish_reason for t in moments)
        assert set(reasons) == {"length", "abort", "deadline"}
        for reason in ("stop", "length", "abort"):
            assert samples["vllm:request_success_total", (("finished_reason", reason),)] == reasons[reason]
        assert samples["drut_request_failures_total", (("reason", "deadline"),)] == reasons["deadline"]
        assert samples["drut_request_failures_total", (("reason", "rejected"),)] == rejected

    run(main())


def test_tokens_that_come_together_share_the_gap_before_them() -> None:
    async def main() -> None:
        loop, metrics, engine = asyncio.get_running_loop(), Metrics("tiny"), FakeEngine()
        admission = AdmissionControl(engine, observer=metrics, clock=loop.time)
        ticket = Reading(admission, QueuedRequest([0], FilledParams(max_tokens=30)))
        ticket.ticket.on_message(Output("", Chunk("a", [1]), False))
        await asyncio.sleep(0.09)
        ticket.ticket.on_message(Output("", Chunk("bcd", [1, 2, 3]), False))
        ticket.cancel()
        check_histogram(scrape(metrics), "vllm:inter_token_latency_seconds", [0.03] * 3, GAPS)

    run(main())


def test_the_engines_counts_and_its_death() -> None:
    async def main() -> None:
        metrics, engine = Metrics("tiny", asyncio.get_running_loop().time), FakeEngine(max_seqs=1)
        assert scrape(metrics)["drut_engine_up", ()] == 0
        metrics.gate = ConnectionGate(2, 1)
        assert [bool(metrics.gate.enter(a)) for a in ("10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3")] == [
            False, True, False, True]
        admission = AdmissionControl(engine, observer=metrics, clock=asyncio.get_running_loop().time)
        metrics.watch(admission, engine, EngineConfig())  # type: ignore[arg-type]
        for _ in range(9):
            Reading(admission, QueuedRequest([0] * 8, FilledParams(max_tokens=5)))
        metrics.count_reply(200)
        metrics.update_stats(msgspec.structs.replace(STATS, step_seconds=2.5, floor_seconds=1.0))
        metrics.update_stats(STATS)
        samples = scrape(metrics)
        queued = admission.waiting
        assert queued == 4
        wanted = {
            ("vllm:num_requests_running", ()): 5, ("vllm:num_requests_waiting", ()): 3 + queued,
            ("drut_requests_waiting", (("reason", "queue"),)): queued,
            ("drut_requests_waiting", (("reason", "pages"),)): 2, ("drut_requests_waiting", (("reason", "turn"),)): 1,
            ("drut_queue_tokens", ()): 32, ("vllm:kv_cache_usage_perc", ()): 0.7,
            ("drut_kv_pages", (("state", "free"),)): 3, ("drut_kv_pages", (("state", "cached"),)): 4,
            ("drut_kv_window_pages", (("state", "free"),)): 5, ("drut_kv_window_pages", (("state", "cached"),)): 12,
            ("drut_kv_window_pages", (("state", "own"),)): 3,
            ("drut_kv_pages", (("state", "own"),)): 3, ("vllm:num_preemptions_total", ()): 7,
            ("drut_preemptions_total", (("reason", "pages"),)): 5,
            ("drut_preemptions_total", (("reason", "policy"),)): 2, ("drut_expected_tokens", ()): 340,
            ("vllm:prefix_cache_queries_total", ()): 100, ("vllm:prefix_cache_hits_total", ()): 60,
            ("drut_prefix_cache_evicted_misses_total", ()): 16, ("drut_evicted_pages_total", ()): 9,
            ("drut_expert_tokens_total", (("layer", "0"),)): 80,
            ("drut_busiest_expert_tokens_total", (("layer", "2"),)): 11,
            ("vllm:iteration_tokens_total_bucket", (("le", "8.0"),)): 24, ("vllm:iteration_tokens_total_count", ()): 30,
            ("vllm:iteration_tokens_total_sum", ()): 400,
            ("vllm:cache_config_info", (("block_size", "16"), ("cache_dtype", "bf16"),
                                        ("enable_prefix_caching", "True"), ("num_gpu_blocks", "10"))): 1,
            ("drut_steps_total", ()): 30, ("drut_step_rows_total", ()): 400, ("drut_failed_steps_total", ()): 1,
            ("drut_compiled_grammars_total", ()): 7,
            ("vllm:spec_decode_num_drafts_total", (("method", "ngram"),)): 9,
            ("vllm:spec_decode_num_draft_tokens_total", (("method", "ngram"),)): 40,
            ("vllm:spec_decode_num_accepted_tokens_total", (("method", "ngram"),)): 11,
            ("vllm:spec_decode_num_accepted_tokens_per_pos_total", (("method", "ngram"), ("position", "1"))): 4,
            ("drut_last_step_age_seconds", ()): 0.5, ("drut_engine_up", ()): 1,
            ("drut_step_seconds_bucket", (("le", "0.1"),)): 10, ("drut_step_seconds_bucket", (("le", "1.0"),)): 25,
            ("drut_step_seconds_count", ()): 30, ("drut_step_seconds_sum", ()): 12.5,
            ("drut_step_floor_seconds_total", ()): 5.0, ("drut_roof_share", ()): 0.4,
            ("drut_http_replies_total", (("status", "200"),)): 1, ("drut_connections", ()): 2,
            ("drut_connections_refused_total", (("reason", "address"),)): 1,
            ("drut_connections_refused_total", (("reason", "total"),)): 1}
        assert {key: samples[key] for key in wanted} == wanted
        families = {f.name for f in text_string_to_metric_families(metrics.render()[1].decode())}
        assert families == set(METRICS)
        assert set(VLLM) <= {name.removesuffix("_total") for name in METRICS} | {"vllm:iteration_tokens_total"}
        await asyncio.sleep(0.05)
        assert scrape(metrics)["drut_last_step_age_seconds", ()] == pytest.approx(0.55)
        engine.die("lightning")
        after = scrape(metrics)
        assert after["drut_engine_up", ()] == 0
        assert ("vllm:num_requests_running", ()) not in after

    run(main())


def test_the_share_of_the_roof_is_of_the_steps_between_two_looks() -> None:
    metrics = Metrics("tiny", lambda: 0.0)

    def share(seconds: float, floor: float | None) -> float | None:
        metrics.update_stats(msgspec.structs.replace(STATS, step_seconds=seconds, floor_seconds=floor))
        return scrape(metrics).get(("drut_roof_share", ()))

    assert share(10.0, None) is None
    assert share(11.0, 0.0) is None  # some of these steps ran before the roof was known
    assert share(13.0, 1.0) == 0.5
    assert share(13.0, 1.0) == 0.5  # no step since
    assert share(14.0, 1.25) == 0.25


def test_bounds_cover_cpus_and_gpus() -> None:
    """From a fast GPU's 0.2 ms between tokens to a slow CPU's seconds, with room on both sides."""
    for low, high, bounds in ((2e-4, 5.0, GAPS), (5e-3, 300.0, SECONDS), (1.0, 1e5, TOKENS)):
        assert bisect_left(bounds, low * 1.01) >= 1
        assert bisect_left(bounds, high * 1.01) < len(bounds)

