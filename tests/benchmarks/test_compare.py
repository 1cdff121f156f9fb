"""The parts of the peer comparison that need no peer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.peers import models
from benchmarks.peers.build import ROOT
from benchmarks.peers.offline import condensed, document, results, summary
from benchmarks.peers.offline.columns import COLUMNS, FIRST_PLAIN
from benchmarks.peers.offline.machine_roof import floors
from benchmarks.peers.offline.window import full_batch
from benchmarks.peers.offline.workers.drut_worker import Engine
from benchmarks.report import Spread

from drut.kernels.native import library as native
from drut.observe.ledger import Macs, Peaks
from tests.cli import tiny


def test_the_full_batch_counts_from_the_last_first_token_to_the_first_last_one() -> None:
    window = full_batch([[1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, 5.0]])
    assert window == (4, 2.0, 2)  # at 3 and at 4, of both
    assert full_batch([[0.0, 0.5, 1.0]]) == (2, 1.0, 2)


def test_a_batch_that_never_decodes_together_is_an_error() -> None:
    with pytest.raises(ValueError, match="never decoded all at once"):
        full_batch([[1.0, 2.0], [2.0, 3.0]])


def test_prompts_are_the_same_for_all_engines_and_new_in_every_round() -> None:
    column = COLUMNS["decode8"]
    first = column.prompts("0", 5000)
    assert first == column.prompts("0", 5000)
    (batch,) = first
    assert [len(prompt) for prompt in batch] == [128] * 8
    assert all(FIRST_PLAIN <= token < 5000 for prompt in batch for token in prompt)
    heads = {tuple(prompt[:4]) for name in ("warm-up", "0", "1") for prompt in column.prompts(name, 5000)[0]}
    heads |= {tuple(prompt[:4]) for prompt in COLUMNS["prefill"].prompts("0", 5000)[0]}
    assert len(heads) == 24 + 2


def test_speeds() -> None:
    prefill, decode = COLUMNS["prefill"], COLUMNS["decode1"]
    assert prefill.speed([{"seconds": [0.5, 1.5]}]) == 512
    assert decode.speed([{"tokens": 64, "seconds": 1.0}, {"tokens": 64, "seconds": 3.0}]) == 32
    assert [do for do, _ in decode.questions(decode.prompts("0", 999))] == ["decode", "decode"]
    (do, arguments), = prefill.questions(prefill.prompts("0", 999))
    assert (do, len(arguments["prompts"])) == ("prefill", 2)


def test_the_shape_of_a_step() -> None:
    assert COLUMNS["prefill"].shape() == [512, 1, 512, 512 * 513 // 2]
    assert COLUMNS["decode8"].shape() == [8, 8, 8 * 160, 8 * 160]
    assert (COLUMNS["prefill"].tokens_a_step(), COLUMNS["decode8"].tokens_a_step()) == (512, 8)


def test_the_floor_is_a_sum_over_operations_by_the_roof_of_each() -> None:
    best = Peaks(lambda working_set: 100.0, Macs(int4=20.0, int8=10.0, floats=5.0))
    assert floors([[1000, [0, 10, 0]], [100, [40, 50, 50]], [10, [0, 30, 0]]], best) == {
        "read": 10.0, "floats": 10.0, "int8": 5.0 + 3.0, "int4": 2.0}
    assert list(floors([[1, [0, 1, 0]], [1, [400, 0, 0]]], best)) == ["int4", "int8"]


def fake_rounds() -> list[dict]:
    speeds = [{"drut": 20.0, "llamacpp": 10.0}, {"drut": 30.0, "llamacpp": 10.0}, {"drut": 24.0}]
    return [{"round": i, "order": list(s), "speed": s, "cpus": dict.fromkeys(s, 1.99), "others_cpus": 0.02,
             "ids": {n: [1, 2 + (n == "drut")] for n in s}} for i, s in enumerate(speeds)]


def test_ratios_are_taken_within_rounds() -> None:
    rounds = fake_rounds()
    assert summary.speed(rounds, "drut") == Spread(24.0, 20.0, 30.0)
    assert summary.ratio(rounds, "drut", "llamacpp") == Spread(2.5, 2.0, 3.0)
    assert summary.ratio(rounds, "drut", "vllm") is None
    assert summary.cpus(rounds, "llamacpp") == Spread(1.99, 1.99, 1.99)
    assert summary.agreement(rounds, "llamacpp", "drut") == 0.5
    assert summary.spread([2.0, 1.0]).text(1) == "1.5 (1.0 .. 2.0)"


def fake_result(column: str = "decode1") -> dict:
    engines = {name: {"engine": f"{name} 1", "file": "f.gguf", "same_file": True, "load_s": 0.2, "ready_s": 0.5,
                      "pinned_by": "itself", "memory_mb": 100.0} for name in ("drut", "llamacpp")}
    return {"model": "smollm2-q4_0", "column": column, "title": COLUMNS[column].title, "when": "2026-01-01 00:00",
            "command": "python -m benchmarks.peers.offline", "rounds": fake_rounds(), "engines": engines,
            "missing": {"vllm": "not built (make peers)"}, "roof_tokens_per_s": {"best": 40.0, "avx2": 30.0},
            "bound_by": {"best": "int4", "avx2": "read"},
            "roof": {"isa": "avx2", "threads": 2, "read_gb_per_s": {"262144": 90.0, "1048576": 30.0},
                     "int4_gmac_per_s": 500.0, "int8_gmac_per_s": 400.0, "fp32_gmac_per_s": 90.0,
                     "bf16_gmac_per_s": 100.0},
            "machine": {"cpu": "A CPU", "cpus": 2, "memory_gb": 24.0, "system": "6", "python": "3.11", "commit": "c0"}}


def tables(*columns: dict) -> list[dict]:
    return condensed.condense({("smollm2-q4_0", ("drut", "llamacpp")): list(columns)})


def test_the_page_has_speeds_ratios_shares_and_who_is_missing() -> None:
    page = document.document(tables(fake_result(), fake_result("decode8")))
    assert "| Drut | 0.5 | 24 (20–30) | 24 (20–30) |" in page
    assert "| Drut / llama.cpp |  | **2.50** (2.00–3.00) | **2.50** (2.00–3.00) |" in page
    assert "| Drut, % of the roof |  | 60 (int4) | 60 (int4) |" in page
    assert "- Left out: vLLM: not built (make peers)." in page
    assert "roof 30.0 GB/s, int4 500, int8 400, fp32 90, bf16 100 GMAC/s; others used 0.02 CPUs." in page
    assert "50 % of llama.cpp's first tokens equal Drut's" in page
    assert "Measured on A CPU, 2 CPUs, 24 GB, Linux 6, Python 3.11, 2026-01-01, at commit c0." in page
    assert page.count("`python -m benchmarks.peers.offline`") == 1, "one run is listed once"
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)


def test_a_busy_machine_and_an_idle_engine_are_reported() -> None:
    result = fake_result()
    for record in result["rounds"]:
        record["others_cpus"] = 0.5
        record["cpus"] = dict.fromkeys(record["cpus"], 1.0)
    page = document.document(tables(result))
    assert "(**busy: repeat**)" in page
    assert "llama.cpp kept 1.00 CPUs busy in one column" in page


def test_the_page_before_any_measurement() -> None:
    assert "Nothing has been measured yet" in document.document([])


def test_stored_tables_go_round_and_a_model_is_replaced_alone(tmp_path: Path) -> None:
    path = tmp_path / "results" / "benchmarks.json"
    assert condensed.load(path) == []
    condensed.save(tables(fake_result()), path)
    assert condensed.load(path) == tables(fake_result())
    other = {**tables(fake_result())[0], "model": "llama1b-q4_0"}
    new = tables(fake_result("decode8"))
    assert condensed.update([*condensed.load(path), other], new) == [*new, other]


def test_the_page_is_that_of_the_stored_tables() -> None:
    assert document.PATH.read_text() == document.document(condensed.load())


def test_results_replace_those_of_their_model_column_and_engines(tmp_path: Path) -> None:
    results.save({**fake_result(), "when": "before"}, tmp_path)
    path = results.save(fake_result(), tmp_path)
    results.save(fake_result("prefill"), tmp_path)
    assert json.loads(path.read_text())["when"] == "2026-01-01 00:00"
    loaded = results.load_all(tmp_path)
    assert [r["column"] for r in loaded["smollm2-q4_0", ("drut", "llamacpp")]] == ["prefill", "decode1"]
    assert len(loaded) == 1


def test_results_with_other_engines_stay_unless_all_of_them_were_measured_again(tmp_path: Path) -> None:
    def measured(*names: str) -> dict:
        engine = fake_result()["engines"]["drut"]
        return {**fake_result(), "engines": dict.fromkeys(("drut", *names), engine)}

    for names in (("llamacpp",), ("vllm",)):
        results.save(measured(*names), tmp_path)
    assert [group for _, group in results.load_all(tmp_path)] == [("drut", "llamacpp"), ("drut", "vllm")]
    results.save(measured("vllm", "openvino"), tmp_path)
    assert [group for _, group in results.load_all(tmp_path)] == [("drut", "llamacpp"), ("drut", "openvino", "vllm")]


def test_models_have_names_of_their_own() -> None:
    assert all(name == model.name for name, model in models.MODELS.items())


@pytest.mark.parametrize("name", ["README.md", "README.hi.md"])
def test_the_readmes_speeds_are_those_of_the_page(name: str) -> None:
    page = document.PATH.read_text()
    lines = [line.replace(" .. ", "–") for line in (ROOT / name).read_text().splitlines() if line.startswith("| ")]
    cells = [cell for line in lines for cell in line.strip("| ").split(" | ")[1:] if re.search(r"\d–\d", cell)]
    assert len(cells) >= 6
    assert [cell for cell in cells if f"| {cell} |" not in page] == []


@pytest.mark.skipif(native.load() is None, reason="the native library is not built")
def test_drut_answers_as_a_contestant(tmp_path: Path) -> None:
    engine = Engine()
    model = tmp_path / "tiny.gguf"
    model.write_bytes(tiny.model())
    engine.load(str(model), threads=1, kv_dtype="int8")
    asked = engine.prefill([[1, 2, 3], [4, 5, 6]])
    assert len(asked["ids"]) == 2
    assert min(asked["seconds"]) > 0
    decoded = engine.decode([[1, 2, 3], [4, 5, 6]], 5)
    assert decoded["ids"] == asked["ids"]
    assert decoded["tokens"] > 0
    (costs,) = engine.costs([[2, 2, 6, 6]])["costs"]
    assert sum(nbytes for nbytes, _ in costs) > 0
