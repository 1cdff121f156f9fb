"""What counts as worse, and what is chance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from drut.bench.diff.judge import USUAL, Change, changes, worse
from drut.bench.report.estimates import MetricEstimate
from tests.bench.report import samples

BASE = samples.result()


def verdicts(found: list[Change]) -> dict[str, str]:
    return {c.figure: c.verdict for c in found}


def test_a_slower_run_is_worse_in_its_latencies_alone() -> None:
    found = verdicts(changes(BASE, samples.result(slow=1.3, seed=1)))
    assert {name for name, verdict in found.items() if verdict == "worse"} == {"ttft_ms_p50", "ttft_ms_p99",
                                                                               "tpot_ms_p50", "e2e_ms_p50"}
    assert found["output_tokens_per_s"] == "level"  # an open loop gets what it asks for
    back = verdicts(changes(samples.result(slow=1.3, seed=1), BASE))
    assert {name: v for name, v in back.items() if v != "level"} == dict.fromkeys(
        [name for name, v in found.items() if v == "worse"], "better")


def test_the_same_thing_twice_is_level() -> None:
    assert {c.change for c in changes(BASE, BASE)} == {0.0}
    assert set(verdicts(changes(BASE, samples.result(seed=2))).values()) == {"level"}


def test_comparisons_of_the_same_engines_raise_no_alarm() -> None:
    """Five pairs with 80 figures each: without allowing for their number, each pair would have some."""
    docs = [samples.comparison(seed=i) for i in range(10)]
    assert [c for a, b in zip(docs[::2], docs[1::2], strict=True) for c in changes(a, b) if c.verdict != "level"] == []


def test_one_engine_that_became_slower_is_found_among_four() -> None:
    found = changes(samples.comparison(), samples.comparison(factor={"vllm": 0.7}, seed=5))
    assert {c.who for c in worse(found)} == {"vllm", "vllm / drut"}
    assert {c.cell for c in worse(found) if c.figure == "output_tokens_per_s"} == {c.name for c in samples.CELLS}


def test_searches_differ_where_their_brackets_are_apart() -> None:
    a = samples.a_search()
    assert verdicts(changes(a, samples.a_search(capacity=6.9))) == dict.fromkeys(
        ("slo_rate", "saturation", "knee"), "worse")
    assert set(verdicts(changes(a, samples.a_search(capacity=7.9))).values()) == {"level"}


def test_a_technique_that_buys_less_is_worse() -> None:
    found = [c for c in changes(samples.ablation(), samples.ablation(prefix=1.7)) if c.verdict != "level"]
    assert {(c.who, c.cell, c.verdict) for c in found} == {("prefix: on / off", "shared prefix", "worse")}


def test_only_what_is_asked_for_is_compared_and_least_counts() -> None:
    slow = samples.result(slow=1.3, seed=1)
    found = changes(BASE, slow, {"tpot_ms_p50"}, least=0.5)
    assert verdicts(found) == {"tpot_ms_p50": "level"}
    assert found[0].low is not None
    assert 0.2 < found[0].low < (found[0].change or 0) < 0.4


def estimate(value: Any, low: Any = None, high: Any = None, draws: int = 0, **more: Any) -> MetricEstimate:
    return MetricEstimate(cell="", who="", figure=more.pop("figure", "ttft_ms_p50"), of="value",
                          unit=more.pop("unit", "ms"),
                          better="less", value=value, low=low, high=high, draws=draws)


@pytest.mark.parametrize(("a", "b", "verdict"), [
    (estimate(100.0), estimate(200.0), "unknown"),  # neither has an interval
    (estimate(100.0, 99.0, 101.0, 9), estimate(200.0), "unknown"),
    (estimate(100.0, 99.0, "inf", 9), estimate(200.0, 190.0, 210.0, 9), "unknown"),
    (estimate(100.0, 99.0, 101.0, 9), estimate("inf"), "worse"),  # the percentile fell on failures
    (estimate("inf"), estimate(100.0, 99.0, 101.0, 9), "better"),
    (estimate("inf"), estimate("inf"), "level"),
    (estimate(100.0, 99.0, 101.0, 9), estimate(104.0, 103.0, 105.0, 9), "level"),  # sure, and less than --least
    (estimate(100.0, 99.0, 101.0, 9), estimate(106.0, 105.0, 107.0, 9), "worse"),
    (estimate(100.0, 90.0, 110.0, 9), estimate(112.0, 100.0, 124.0, 9), "level"),
    (estimate(0.0, 0.0, 0.0, 9), estimate(3.0, 2.0, 4.0, 9), "worse"),  # no ratio to nothing
    (estimate(0.0, 0.0, 0.003, 900, unit="share"), estimate(0.03, 0.025, 0.036, 900, unit="share"), "worse"),
    (estimate(0.0, 0.0, 0.003, 900, unit="share"), estimate(0.008, 0.005, 0.01, 900, unit="share"), "level"),
])
def test_single_figures(monkeypatch: pytest.MonkeyPatch, a: MetricEstimate, b: MetricEstimate, verdict: str) -> None:
    monkeypatch.setattr("drut.bench.diff.judge.estimates", lambda document: [document])
    found = changes(a, b, {"ttft_ms_p50"})  # type: ignore[arg-type]
    assert [c.verdict for c in found] == [verdict]


def test_the_usual_figures_leave_out_what_has_no_interval() -> None:
    short = samples.result(seconds=6.0, lost=0)
    assert {c.figure for c in changes(short, short)} == {"error_rate"}
    assert {c.verdict for c in changes(short, short, set(USUAL)) if c.figure != "error_rate"} == {"unknown"}


def test_changes_can_be_written_as_json() -> None:
    lost = msgspec.structs.replace(BASE, summary=msgspec.structs.replace(
        BASE.summary, ttft_ms=msgspec.structs.replace(BASE.summary.ttft_ms, p99="inf")))
    data = msgspec.json.decode(msgspec.json.encode(changes(BASE, lost)))
    mine = next(c for c in data if c["figure"] == "ttft_ms_p99")
    assert (mine["b"], mine["change"], mine["verdict"]) == ("inf", None, "worse")
