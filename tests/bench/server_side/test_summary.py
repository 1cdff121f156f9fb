"""Servers' pages to quantities: each engine's names, differences of counts, percentiles no finer than their buckets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.bench.server_side.names import COUNTERS, ENGINES, GAUGES, HISTOGRAMS, detect
from drut.bench.server_side.page import ScrapedHistogram, names_on, parse
from drut.bench.server_side.summary import ServerSide, bounds, difference, summarize, wanted_names
from drut.errors import RequestError
from tests.bench.server_side import pages

BY_NAME = {engine.name: engine for engine in ENGINES}


def summary(after: str, before: str = "", during: tuple[str, ...] = (), seconds: float = 10.0) -> ServerSide:
    engine = detect(names_on(after))
    assert engine
    wanted = wanted_names(engine)
    return summarize(engine, "u", parse(before, wanted), [parse(text, wanted) for text in during],
                     parse(after, wanted), seconds, 0)


@pytest.mark.parametrize("name", pages.ENGINES)
def test_each_engine_is_known_and_all_its_names_are_found(name: str) -> None:
    result = summary(pages.ENGINES[name])
    assert result.engine == name
    expected = set(BY_NAME[name].sources) - ({"kv_use"} if name == "llama.cpp" else set())  # of older servers only
    assert {*result.distributions, *result.totals, *result.levels} == expected
    assert result.problems == []


def test_every_quantity_of_every_engine_is_one_of_ours() -> None:
    assert {key for engine in ENGINES for key in engine.sources} == {*HISTOGRAMS, *COUNTERS, *GAUGES}


def test_what_no_engine_wrote_is_told_from_what_one_did() -> None:
    assert detect(names_on(pages.PYTHON)) is None
    assert detect([]) is None


def test_differences_over_a_run_add_up_over_engines() -> None:
    result = summary(pages.vllm(4), before=pages.vllm(1), during=(pages.vllm(2), pages.vllm(3)))
    assert result.totals["generation_tokens"].total == 3 * 3 * 500
    assert result.totals["generation_tokens"].per_s == 450
    assert result.totals["prefix_hit_tokens"].total / result.totals["prefix_query_tokens"].total == 0.25
    ttft = result.distributions["ttft"]
    assert (ttft.count, ttft.mean_ms) == (90, pytest.approx(95))
    assert ttft.percentiles_ms == {"p50": (10, 100), "p90": (10, 100), "p95": (100, 1000), "p99": (100, 1000)}
    assert (result.levels["running"].mean, result.levels["waiting"].max) == (9, 3)
    assert "step" in result.notes["itl"]


def test_gauges_are_of_the_pages_during_the_run() -> None:
    during = tuple(pages.LLAMA_CPP.replace("requests_processing 2", f"requests_processing {n}") for n in (4, 8))
    level = summary(pages.LLAMA_CPP, during=during).levels["running"]
    assert (level.mean, level.max) == (6, 8)


def test_llama_cpp_counts_cached_prompt_tokens_apart() -> None:
    totals = summary(pages.LLAMA_CPP).totals
    assert (totals["prompt_tokens"].total, totals["prefix_hit_tokens"].total) == (400, 100)
    old = "".join(line for line in pages.LLAMA_CPP.splitlines(True) if "cached" not in line)
    totals = summary(old).totals
    assert totals["prompt_tokens"].total == 300
    assert "prefix_hit_tokens" not in totals


def test_a_server_that_was_started_anew_is_noticed() -> None:
    result = summary(pages.vllm(1), before=pages.vllm(3))
    assert not result.totals
    assert not result.distributions
    assert any("vllm:generation_tokens_total fell" in problem for problem in result.problems)


def test_nothing_counted_has_no_percentiles() -> None:
    result = summary(pages.vllm(1), before=pages.vllm(1))
    assert result.distributions == {}
    assert result.totals["generation_tokens"].total == 0


def test_above_the_last_bound_there_is_none() -> None:
    assert summary(pages.SGLANG).distributions["e2e"].percentiles_ms["p50"] == (400, None)


BOUNDS = [0.001, 0.01, 0.1, 1.0, math.inf]
VALUES = st.lists(st.floats(1e-6, 5.0), min_size=1, max_size=60)


def count(values: list[float]) -> ScrapedHistogram:
    return ScrapedHistogram({bound: float(sum(v <= bound for v in values)) for bound in BOUNDS}, sum(values))


@given(values=VALUES, quantile=st.sampled_from([0.5, 0.9, 0.95, 0.99, 1.0]))
def test_the_true_percentile_lies_between_its_bounds(values: list[float], quantile: float) -> None:
    nearest_rank = sorted(values)[math.ceil(round(quantile * len(values), 6)) - 1]
    low, high = bounds(count(values), quantile)
    assert low < nearest_rank <= high


@given(before=VALUES, run=VALUES)
def test_a_difference_is_what_the_run_alone_would_count(before: list[float], run: list[float]) -> None:
    found = difference(count(before), count(before + run))
    assert found
    assert found.counts == count(run).counts
    assert found.total_s == pytest.approx(sum(run))


@pytest.mark.parametrize("line", [
    "vllm:num_requests_running x", 'vllm:time_to_first_token_seconds_bucket{le="x"} 1',
    'vllm:time_to_first_token_seconds_bucket{a="1"} 1', "vllm:num_requests_running"])
def test_damaged_lines_are_refused_and_others_not_looked_at(line: str) -> None:
    wanted = wanted_names(BY_NAME["vllm"])
    with pytest.raises(RequestError, match="Prometheus"):
        parse(line, wanted)
    assert parse(line.replace("vllm:", "other_"), wanted).value("vllm:num_requests_running") is None
