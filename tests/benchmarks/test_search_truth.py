from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks.serving import search_truth
from benchmarks.serving.search_truth import CASES, Record, cells, kept, record

from drut.bench.mock import Served, parse_script
from drut.bench.search.schema import SCHEMA, Point, Search, SearchAnswer

TRUTH = {"saturation": 100.0, "knee": 60.0, "slo_rate": 75.0}
GOOD = Record(server="one", seed=0, saturation=SearchAnswer(100.0), knee=SearchAnswer(62.9),
              slo_rate=SearchAnswer(71.3, 70.0, 76.0),
              runs=9, void=1, ended="", over_ms=0.5, late_p50_ms=0.1, late_p99_ms=2.0, stalled=0.0, others_cpus=0.2,
              search_cpus=0.3, mock_cpus=0.1)


def test_a_search_passes_with_all_figures_near_the_truth() -> None:
    assert GOOD.passes(TRUTH)
    for name, value in (("saturation", 94.9), ("saturation", 105.1), ("knee", None), ("slo_rate", 71.2)):
        assert not msgspec.structs.replace(GOOD, **{name: SearchAnswer(value)}).passes(TRUTH)


def test_a_row_reports_the_errors_and_what_is_not_known() -> None:
    row = cells(msgspec.structs.replace(GOOD, knee=SearchAnswer(None), over_ms=None), TRUTH)
    assert len(row) == len(search_truth.HEADS)
    assert row[1] == "+0.0%"
    assert row[3:7] == ["?", "? .. ?", "-4.9%", "70 .. 76"]


@pytest.mark.parametrize("name", CASES)
def test_scripts_are_taken_and_have_the_times_of_the_simulation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    script = parse_script(case.script())
    assert (script.slots, script.output_tokens) == (case.slots, 2)
    monkeypatch.setattr(search_truth, "SIMULATED", 20_000)
    truth = case.truth()
    assert truth["saturation"] == pytest.approx(1e3 * case.slots / (case.first_ms + case.rest_ms))
    assert truth["knee"] < truth["saturation"] > truth["slo_rate"]


def test_a_record_has_the_delays_of_what_was_answered() -> None:
    points = [Point(phase="curve", rate=None, concurrency=users, offered=10, good=10, good_share=1.0, good_low=0.9,
                    good_high=1.0, holds=None, valid=valid, reasons=[], figures={}, e2e_ms_mean=e2e)
              for users, valid, e2e in ((1, False, 90.0), (1, True, 10.75), (2, True, 20.0))]
    found = Search(schema=SCHEMA, settings={}, environment={}, target="mock", points=points,
                   saturation=SearchAnswer(100.0),
                   knee=SearchAnswer(None), slo_rate=SearchAnswer(None))
    served = [Served(request=i, arrived_s=1.0, started_s=1.0, due_first_s=2.0, first_s=2.001 + 0.006 * (i == 3),
                     last_s=2.0, ended_s=3.0, prompt_tokens=1, tokens=2, outcome="ok") for i in range(4)]
    served.append(Served(request=4, arrived_s=1.0, started_s=0.0, due_first_s=0.0, first_s=0.0, last_s=0.0, ended_s=3.0,
                         prompt_tokens=1, tokens=0, outcome="gone"))
    made = record("one", 3, found, served, (0.1, 0.2, 0.3))
    assert (made.runs, made.void, made.stalled, made.search_cpus) == (3, 1, 0.25, 0.2)
    assert made.over_ms == pytest.approx(0.75)
    assert made.late_p50_ms == pytest.approx(1.0)


def test_a_search_that_is_done_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def once(name: str, seed: int, budget: str, folder: Path) -> Record:
        made.append((name, seed, budget))
        folder.mkdir(parents=True)
        return msgspec.structs.replace(GOOD, seed=seed)

    monkeypatch.setattr(search_truth, "search", once)
    assert kept("one", 0, "10m", tmp_path) == kept("one", 0, "10m", tmp_path) == GOOD
    kept("one", 1, "10m", tmp_path)
    kept("one", 1, "5m", tmp_path)
    assert made == [("one", 0, "10m"), ("one", 1, "10m"), ("one", 1, "5m")]


def test_cpus_of_ended_children_count_as_the_searchs_own() -> None:
    before = search_truth.children_s()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.1: pass"], check=True)
    assert search_truth.children_s() - before >= 0.08
