"""Comparisons of scripted servers, whose times are known. What others do on this machine must not void a turn here, so
the client's lag is not judged."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from drut.bench.compare import block as block_module
from drut.bench.compare import comparing as module
from drut.bench.compare.files import load
from drut.bench.engines import process
from drut.bench.engines.engine import Launch
from drut.bench.result import validity
from drut.bench.tokens import ServerTokenizer
from drut.errors import RequestError
from tests.bench.compare.made import FAST, SLOW, block, comparing, run, script, work

RATE = "output_tokens_per_s"


@pytest.fixture(autouse=True)
def _any_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validity, "LAG_MS", 1e9)
    monkeypatch.setattr(validity, "MAX_CPU", 10.0)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    yield
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert [p.cmdline() for p in left if p.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
def test_every_contestant_is_measured_held_meanwhile_and_saved_after_each_turn(tmp_path: Path) -> None:
    what = comparing(tmp_path, [script(tmp_path, "a", FAST), script(tmp_path, "b", FAST)])
    held: list[list[str]] = []

    def report(text: str) -> None:
        if " of 2, " in text:
            held.append([psutil.Process(c.running.pid).status() for c in what.candidates if c.running])
            assert len(what.blocks) == len(held)
            assert len(load(tmp_path / "out").blocks) == len(held) - 1  # that of this turn follows

    found = run(what, report)
    assert [block.contestant for block in found.blocks] == ["a", "b"]
    assert [status.count(psutil.STATUS_STOPPED) for status in held] == [1, 1]
    assert all(block.valid for block in found.blocks)
    assert all(block.figures[RATE] > 0 for block in found.blocks)  # type: ignore[operator]
    assert {c.outcome for c in found.contestants} == {"measured"}
    assert all(c.ready_s and c.ready_mb and c.peak_mb for c in found.contestants)
    assert found.contestants[1].gate is not None
    assert found.contestants[1].gate.agreement == 1.0
    assert found.finished
    assert load(tmp_path / "out") == found


def test_one_that_cannot_start_costs_the_others_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        engines = [script(tmp_path, "busy", FAST).replace("=mock ", f"=mock port={port} "), "none=mock",
                   script(tmp_path, "well", FAST)]
        found = run(comparing(tmp_path, engines))
    busy, none, well = found.contestants
    assert (busy.outcome, none.outcome, well.outcome) == ("cannot run", "cannot run", "measured")
    assert f"port {port} is in use by PID {os.getpid()}" in busy.why
    assert "needs the flags --script" in none.why
    assert [block.contestant for block in found.blocks] == ["well"]
    assert found.base == "well"
    assert any("the base, busy, was not measured" in note for note in found.notes)
    assert found.finished


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_contestants")
@pytest.mark.parametrize(("late_tries", "counted"), [(1, [False, True]), (9, [False, False])])
def test_a_turn_in_which_the_client_was_held_up_is_taken_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_tries: int, counted: list[bool]
) -> None:
    late = iter([("the latest", 1e12)] * late_tries + [("the latest", 0.0)] * 2)
    monkeypatch.setattr(validity, "_lateness", lambda records: next(late))
    seeds: list[int] = []
    of = block_module.seed_of
    monkeypatch.setattr(block_module, "seed_of", lambda *args: seeds.append(of(*args)) or seeds[-1])
    found = run(comparing(tmp_path, [script(tmp_path, "a", FAST)]))
    assert [block.valid for block in found.blocks] == counted
    assert {block.round for block in found.blocks} == {0}
    assert len(set(seeds)) == 2
    assert found.finished
    assert any(f"{counted.count(False)} of 2 turns (second tries: 1) are void" in note for note in found.notes)


@pytest.mark.usefixtures("virtual_contestants")
def test_a_second_try_that_was_cut_off_is_taken_by_resume(tmp_path: Path) -> None:
    what = comparing(tmp_path, [script(tmp_path, "a", FAST)])
    void = msgspec.structs.replace(block(0, "a", what.works[0].cell.name, valid=False), held_up=True)
    what.blocks = [void]
    before = what.comparison()
    assert not before.finished
    found = run(comparing(tmp_path, [script(tmp_path, "a", FAST)], before=before))
    assert [(b.valid, b.again) for b in found.blocks] == [(False, False), (True, True)]
    assert found.finished
    twice = msgspec.structs.replace(void, again=True)
    assert comparing(tmp_path, [script(tmp_path, "a", FAST)],
                     before=msgspec.structs.replace(before, blocks=[void, twice])).missing() == []


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_contestants")
def test_conversations_whose_turns_outlast_the_window_have_no_rates(tmp_path: Path) -> None:
    slow = {"ttft": {"kind": "constant", "ms": 900}, "itl": {"kind": "constant", "ms": 1}}
    more: dict[str, Any] = {"cells": ["multi-turn:turns=2,first=4,later=4,output=4@1"], "duration": 0.3,
                            "tokenizer": "smollm2-135m-instruct"}
    found = run(comparing(tmp_path, [script(tmp_path, "a", slow)], **more))
    assert [b.reasons for b in found.blocks] == [["its responses outlast the turn (a longer --duration)"]]
    alone = run(comparing(tmp_path, [script(tmp_path, "a", slow)], duration=0.3))
    assert [(b.valid, b.figures["requests_per_s"]) for b in alone.blocks] == [(True, pytest.approx(2 / 0.9, rel=0.3))]


@pytest.mark.usefixtures("virtual_contestants")
@pytest.mark.slow
def test_one_that_is_twice_as_slow_is_found_so_and_equals_are_level(tmp_path: Path) -> None:
    engines = [script(tmp_path, "a", FAST), script(tmp_path, "slow", SLOW), script(tmp_path, "b", FAST)]
    found = run(comparing(tmp_path, engines, rounds=4, duration=1.5))
    ratios = {r.contestant: r for r in found.ratios if r.figure == "tpot_ms_p50"}
    assert ratios["slow"].value == pytest.approx(2, rel=1e-3)
    assert ratios["b"].value == pytest.approx(1, rel=1e-3)
    assert ratios["slow"].low <= 2.001
    assert ratios["slow"].high >= 1.999
    assert ratios["slow"].rounds == 4


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_is_killed_or_stuck_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: int
) -> None:
    # Patience with one that is stopped, which neither ends on request nor tokenizes text.
    monkeypatch.setattr(process, "PATIENCE_S", 1.0)
    monkeypatch.setattr("drut.bench.tokens.open.ServerTokenizer", partial(ServerTokenizer, timeout_s=1.0))
    what = comparing(tmp_path, [script(tmp_path, "a", FAST), script(tmp_path, "b", FAST)], rounds=2, grace=1.0)
    serve = what.candidates[0].serve

    def hit(text: str) -> None:
        running = what.candidates[0].running
        if text.startswith("2 of"):  # in round 1 both were measured; now it is the first one's turn no more
            assert running is not None
            what.candidates[0].serve = lambda: (serve(), os.kill(running.pid, how))[0]  # type: ignore[method-assign]

    found = run(what, hit)
    a, b = found.contestants
    assert (a.outcome, b.outcome) == ("failed", "measured")
    assert ("it ended by SIGKILL" if how == signal.SIGKILL else "it answered none of") in a.why
    assert [(block.round, block.contestant) for block in found.blocks] == [(0, "a"), (0, "b"), (1, "b")]
    assert found.ratios == []


@pytest.mark.usefixtures("virtual_contestants")
@pytest.mark.slow
def test_what_is_interrupted_is_gone_on_with(tmp_path: Path) -> None:
    engines = [script(tmp_path, "a", FAST), script(tmp_path, "b", FAST)]
    what = comparing(tmp_path, engines, rounds=2)

    def report(text: str) -> None:
        if text.startswith("3 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(what, report)
    half = what.comparison()
    assert (len(half.blocks), half.finished) == (3, False)
    again = comparing(tmp_path, engines, before=half, rounds=2)
    assert [(turn.round, turn.contestant) for turn in again.missing()] == [(1, "a")]
    found = run(again)
    assert [(b.round, b.contestant) for b in found.blocks] == [(0, "a"), (0, "b"), (1, "b"), (1, "a")]
    assert found.finished
    assert found.contestants[1] == half.contestants[1]
    assert found.contestants[0].gate == half.contestants[0].gate


def test_another_machine_does_not_go_on_with_it(tmp_path: Path) -> None:
    engines = [script(tmp_path, "a", FAST)]
    begun = comparing(tmp_path, engines).comparison()
    elsewhere = msgspec.structs.replace(begun, blocks=[block(0, "a")], environment={"cpu": "Another CPU", "cpus": 2})
    with pytest.raises(RequestError, match="it was started with cpu Another CPU, but this machine has"):
        comparing(tmp_path, engines, before=elsewhere)
    here = msgspec.structs.replace(elsewhere, environment={**begun.environment, "started": "then"})
    assert comparing(tmp_path, engines, before=here).comparison().environment["started"] == "then"


@pytest.mark.usefixtures("virtual_contestants")
@pytest.mark.slow
def test_restarted_ones_are_never_there_together(tmp_path: Path) -> None:
    what = comparing(tmp_path, [script(tmp_path, "a", FAST), script(tmp_path, "b", FAST)], restart=True, rounds=2)
    most: list[int] = []
    found = run(what, lambda text: most.append(sum(c.running is not None for c in what.candidates)))
    assert max(most) == 1
    assert len(found.blocks) == 4
    assert any("started again" in note for note in found.notes)


@pytest.mark.usefixtures("virtual_contestants")
@pytest.mark.slow
def test_one_that_fails_the_gate_is_measured_and_not_ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {**FAST, "output_tokens": 3}
    engines = [script(tmp_path, "a", FAST), script(tmp_path, "short", short)]
    # The scripted server keeps to ignore_eos; one that does not know it is asked without.
    launch = module.find("mock").launch
    monkeypatch.setattr(type(module.find("mock")), "launch", lambda self, *args: _deaf(launch(*args)))
    found = run(comparing(tmp_path, engines))
    a, other = found.contestants
    assert (a.outcome, other.outcome) == ("measured", "gate")
    assert "0% of answers have exactly the requested tokens" in other.why
    by_name = {block.contestant: block for block in found.blocks}
    assert by_name["a"].valid
    assert "responses do not have exactly the requested tokens" in by_name["short"].reasons[-1]
    assert found.rankings == []


def _deaf(launch: Launch) -> Launch:
    return msgspec.structs.replace(launch, exact={})


@pytest.mark.parametrize(("more", "words"), [
    ({"base": "z"}, "'z' is not a contestant"), ({"rounds": 0}, "rounds"), ({"cells": ["chat@2"]}, "--tokenizer"),
    ({"cells": ["chat@2"], "context": 64, "tokenizer": "smollm2-135m-instruct"}, "needs 256 tokens of context"),
    ({"slo": "x"}, "--slo"), ({"price": "x"}, "--price"), ({"gguf": "/none"}, "/none.* does not exist"),
    ({"engines": ["unlisted"]}, "unknown engine 'unlisted'"), ({"seed": -1}, "seed"), ({"colour": 1}, "colour"),
    ({"reference": "/none"}, "--reference"), ({"model_files": "/none"}, "/none: No such file"),
])
def test_what_makes_no_sense_is_reported_before_anything_starts(
    tmp_path: Path, more: dict[str, object], words: str
) -> None:
    with pytest.raises(RequestError, match=words):
        comparing(tmp_path, **{"engines": [script(tmp_path, "a", FAST)], **more})  # type: ignore[arg-type]


@pytest.mark.usefixtures("virtual_contestants")
@pytest.mark.slow
def test_an_open_loop_asks_the_same_of_all(tmp_path: Path) -> None:
    engines = [script(tmp_path, "a", FAST), script(tmp_path, "b", SLOW)]
    found = run(comparing(tmp_path, engines, cells=[f"{work(tmp_path)}@rate=20"]))
    counts = [len(block.samples["ttft_ms"]) for block in found.blocks]
    assert counts[0] == counts[1] > 0
