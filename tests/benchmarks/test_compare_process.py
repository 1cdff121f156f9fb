"""The comparison's driver against an engine that computes nothing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.peers.build import PEERS, ROOT, Peer
from benchmarks.peers.models import MODELS
from benchmarks.peers.offline import contestants as who
from benchmarks.peers.offline.columns import COLUMNS
from benchmarks.peers.offline.contestants import Contestant
from benchmarks.peers.offline.measure import Match, run
from benchmarks.peers.process import EngineError, EngineProcess

from drut.observe.ledger import Macs, Peaks

FAKE = "tests.benchmarks.fake_worker"
CPUS = sorted(os.sched_getaffinity(0))[:2]


@pytest.fixture
def process(tmp_path: Path) -> Iterator[EngineProcess]:
    engine = EngineProcess(python=Path(sys.executable), module=FAKE, log=tmp_path / "log", cwd=ROOT, env={}, cpus=CPUS)
    yield engine
    engine.close()


def test_it_answers(process: EngineProcess) -> None:
    assert process.ask("echo", 20, a=[1, "x"]) == {"a": [1, "x"]}
    assert process.ask("about", 20) == {"engine": "fake 1"}
    assert len(process.tree.pids()) == 1
    assert process.tree.memory().resident_mb > 1


def test_a_paused_engine_does_not_run(process: EngineProcess) -> None:
    process.ask("about", 20)
    process.pause()
    (pid,) = process.tree.pids()
    end = time.monotonic() + 5
    while (state := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) != "T":
        assert time.monotonic() < end, state
    process.resume()
    assert process.ask("echo", 20, b=1) == {"b": 1}


def test_cpu_time_counts(process: EngineProcess) -> None:
    before = process.tree.cpu_s()
    process.ask("spin", 20, seconds=0.1)
    assert process.tree.cpu_s() - before >= 0.08


def test_the_busiest_thread_is_pinned(process: EngineProcess) -> None:
    threads = process.thread_s()
    process.ask("spin", 20, seconds=0.1)
    (pid,) = process.tree.pids()
    process._cpus = CPUS[-1:]
    assert process.pin(threads) == ("the driver" if len(CPUS) > 1 else "itself")
    assert os.sched_getaffinity(pid) == {CPUS[-1]}
    assert process.pin(threads) == "itself"


def test_the_log_of_an_engine_that_dies_is_reported(tmp_path: Path) -> None:
    engine = EngineProcess(python=Path(sys.executable), module=FAKE, log=tmp_path / "log", cwd=ROOT,
                           env={"FAKE_DIES_AT": "1"}, cpus=CPUS)
    with pytest.raises(EngineError, match=r"ended in 'decode' \(1\); (?s:.*)fake trouble"):
        engine.ask("decode", 20, prompts=[[1]], new_tokens=3)
    engine.close()


def test_an_engine_that_hangs_is_killed(process: EngineProcess) -> None:
    process.ask("about", 20)
    with pytest.raises(EngineError, match="no answer to 'sleep' within 0 s"):
        process.ask("sleep", 0.1, seconds=60)
    assert process.tree.pids() == set()


def fake(name: str, **env: str) -> Contestant:
    return Contestant(name=name, python=Path(sys.executable), module=FAKE, path=ROOT / "Makefile", same_file=True,
                      env=env)


@pytest.fixture
def roof() -> SimpleNamespace:
    return SimpleNamespace(measure=lambda: None, peaks=lambda avx2: Peaks(lambda _: 1000.0, Macs(1e9, 1e9, 1e9)))


def test_engines_take_turns_and_one_that_dies_is_left_out(roof: SimpleNamespace, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(who, "LOGS", tmp_path)
    columns = [COLUMNS["prefill"], COLUMNS["decode8"]]
    match = Match([fake("drut"), fake("llamacpp", FAKE_STEP_S="0.02"), fake("vllm", FAKE_DIES_AT="8")], 1000, CPUS)
    try:
        match.start(columns)
        assert match.names == ["drut", "llamacpp"]
        assert "ended in 'decode'" in match.missing["vllm"]
        prefill, decode = run(match, columns, 2, roof)
    finally:
        match.close()
    assert [record["order"] for record in decode["rounds"]] == [["drut", "llamacpp"], ["llamacpp", "drut"]]
    assert decode["rounds"][0]["speed"] == {"drut": pytest.approx(800), "llamacpp": pytest.approx(400)}
    assert decode["rounds"][0]["ids"]["drut"] == decode["rounds"][0]["ids"]["llamacpp"]
    assert prefill["rounds"][1]["speed"]["drut"] == 1024
    assert decode["roof_tokens_per_s"] == {"best": pytest.approx(8 / 3), "avx2": pytest.approx(8 / 3)}
    assert decode["bound_by"] == {"best": "read", "avx2": "read"}
    assert match.engines["drut"]["load_s"] == 0.25
    assert match.engines["drut"]["ready_s"] > 0


def test_peers_that_are_not_built_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "ready", lambda self: False)
    monkeypatch.setitem(who._MAKERS, "drut", lambda model, cpus: fake("drut"))
    found, missing = who.contestants(MODELS["smollm2-q4_0"], ["drut", *PEERS], CPUS)
    assert [contestant.name for contestant in found] == ["drut"]
    assert missing == dict.fromkeys(PEERS, "not built (make peers)")


def test_llama_cpp_takes_no_part_without_a_file_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peer, "ready", lambda self: True)
    assert who.contestants(MODELS["smollm2-w8a8"], ["llamacpp", "llamacpp-avx2"], CPUS) == ([], {})
