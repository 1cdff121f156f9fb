"""Against scripted servers, so that the effects are known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drut.bench.ablate import run
from drut.bench.ablate.book import Book, empty, read
from drut.bench.ablate.recipe import AblationRecipe, AblationTrial, Side
from drut.bench.ablate.run import AblationPlan, ablate, seconds
from drut.bench.compare import candidate
from drut.bench.compare.block import BlockWork
from drut.bench.compare.order import OrderTurn
from drut.bench.compare.schema import Block, Cell
from drut.bench.compare.settings import CompareSettings
from drut.bench.engines.engine import EngineFailedError, EngineFiles, Launch, Options
from drut.bench.engines.mock import MockEngine
from drut.errors import DrutError

DECODING, WAITING = Cell("decoding", "gsm8k:max_tokens=20", concurrency=4), Cell("one", "gsm8k:max_tokens=2",
                                                                               concurrency=1)


def files(weights: str) -> EngineFiles:
    return EngineFiles("mock", None)  # type: ignore[arg-type]  # the server's own


def script(folder: Path, name: str, **fields: Any) -> tuple[str, str]:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(fields))
    return "--script", str(path)


def constant(ms: float) -> dict[str, Any]:
    return {"kind": "constant", "ms": ms}


def technique(folder: Path, name: str = "batching", **off: Any) -> AblationRecipe:
    """On, tokens come 20 ms apart and the first after 100; off is the same but for `off`."""
    on = {"ttft": constant(100), "itl": constant(20)}
    return AblationRecipe(name, "Batching", "It joins.", "It should help.",
                          Side(script(folder, f"{name}-on", **on)),
                          Side(script(folder, f"{name}-off", **{**on, **off})),
                          (AblationTrial(DECODING, {"tpot_ms_p50": "helps"}, chat=True),
                           AblationTrial(WAITING, {"ttft_ms_p50": "no effect"},
                                                                                                       chat=True)))


def plan(*recipes: AblationRecipe, rounds: int = 3) -> AblationPlan:
    return AblationPlan(recipes, rounds, duration_s=1.2, warmup_s=0.1, seed=0, threads=1)


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_contestants")
def test_the_effect_of_a_script_is_found_with_its_size_and_nothing_where_there_is_none(tmp_path: Path) -> None:
    """Off, tokens come 60 ms apart: TPOT must be a third."""
    asked = plan(technique(tmp_path, itl=constant(60)))
    book = Book(tmp_path, empty("mock", asked.settings()))
    ablate(asked, MockEngine(), files, book, lambda line: None)
    assert not seconds(asked, book), [b.reasons for b in book.ablation.blocks if not b.valid]
    found = {effect.cell: effect for effect in read(tmp_path / "ablation.json").effects}
    gain = found["decoding"]
    assert gain.ratio == pytest.approx(1 / 3, rel=0.01)
    assert (gain.expected, gain.verdict, gain.rounds) == ("helps", "helps", 3)
    assert found["one"].ratio == pytest.approx(1, rel=0.01)
    assert [c.outcome for c in book.ablation.contestants] == ["measured", "measured"]
    assert all(c.ready_mb for c in book.ablation.contestants)


class Stage:
    """Servers that only note who runs, and turns that take no time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dies: str = "", refused: str = "", stopped_at: int = 99,
                 void: Sequence[int] = ()) -> None:
        self.running: set[str] = set()
        self.started: list[str] = []
        self.again: list[bool] = []
        self.turns: list[tuple[int, str, str]] = []
        self.dies, self.refused, self.stopped_at, self.void = dies, refused, stopped_at, void
        monkeypatch.setattr(candidate, "start", lambda launch, log: Held(self, launch))
        monkeypatch.setattr(run, "take", self.take)

    def take(self, turn: OrderTurn, who: candidate.Candidate, work: BlockWork, settings: CompareSettings,
             tokenizer: object) -> Block:
        assert self.running == {turn.contestant}, "the others are held"
        self.turns.append((turn.round, turn.cell, turn.contestant))
        self.again.append(turn.again)
        if len(self.turns) == self.stopped_at:
            raise KeyboardInterrupt
        if turn.contestant == self.dies and turn.round == 1:
            raise DrutError("the connection was refused")
        reasons = ["the client sent late"] if len(self.turns) in self.void else []
        return Block(turn.round, turn.place, turn.contestant, turn.cell, not reasons, reasons, {"tpot_ms_p50": 1.0}, {})


class Held:
    pid = 1

    def __init__(self, stage: Stage, launch: Launch) -> None:
        if launch.model == stage.refused:
            raise EngineFailedError("the end of its log")
        self.stage, self.launch, self.ready_s = stage, launch, 0.1
        stage.started.append(launch.model)
        self.resume()

    def stop(self) -> None:
        self.suspend()

    def resume(self) -> None:
        self.stage.running.add(self.launch.model)

    def suspend(self) -> None:
        self.stage.running.discard(self.launch.model)

    def alive(self) -> bool:
        return self.launch.model != self.stage.dies

    def memory(self) -> None:
        return None

    def how_it_ended(self) -> str:
        return "it ended by SIGKILL"


class Engine:
    name, title, verified = "stage", "Stage", True

    def launch(self, files: EngineFiles, options: Options, port: int) -> Launch:
        return Launch("http://127.0.0.1:1", options.flags[0])


def staged(name: str) -> AblationRecipe:
    return AblationRecipe(name, name, "It is.", "It should.", Side((f"{name}/on",)), Side((f"{name}/off",)),
                          (AblationTrial(DECODING, {"tpot_ms_p50": "helps"}),
                           AblationTrial(WAITING, {"tpot_ms_p50": "no effect"})))


def play(folder: Path, *names: str) -> Book:
    asked = plan(*map(staged, names), rounds=2)
    book = Book.resumed(folder, "m", asked.settings())
    ablate(asked, Engine(), files, book, lambda line: None)
    return book


def test_two_servers_take_turns_and_one_runs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    play(tmp_path, "a")
    assert [(r, c, side.removeprefix("a/")) for r, c, side in stage.turns] == [
        (0, "decoding", "on"), (0, "decoding", "off"), (0, "one", "on"), (0, "one", "off"),
        (1, "decoding", "off"), (1, "decoding", "on"), (1, "one", "off"), (1, "one", "on")]
    assert stage.running == set()


@pytest.mark.parametrize(("void", "left"), [([6], 0), ([6, 9], 2)])
def test_both_sides_of_a_void_block_are_taken_once_more_with_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, void: list[int], left: int
) -> None:
    stage = Stage(monkeypatch, void=void)
    book = play(tmp_path, "a")
    assert stage.turns[8:] == [(1, "decoding", "a/off"), (1, "decoding", "a/on")]
    assert stage.again == [False] * 8 + [True] * 2
    assert len(book.ablation.blocks) == 8
    assert len(book.missing(staged("a"), 2)) == left


def test_a_second_try_that_was_cut_off_leaves_no_pair_of_different_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stage(monkeypatch, void=[6], stopped_at=10)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "a")
    book = Book(tmp_path, read(tmp_path / "ablation.json"))
    assert [(turn.round, turn.cell) for turn in book.missing(staged("a"), 2)] == [(1, "decoding")] * 2
    assert len(book.ablation.blocks) == 7


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch)
    play(tmp_path, "a")
    play(tmp_path, "a", "b")
    assert stage.started == ["a/on", "a/off", "b/on", "b/off"]
    assert len(stage.turns) == len(read(tmp_path / "ablation.json").blocks) == 16


def test_a_server_that_dies_ends_its_technique_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, dies="a/on")
    book = play(tmp_path, "a", "b")
    assert {c.name: (c.outcome, c.why) for c in book.ablation.contestants if c.why} == {
        "a/on": ("failed", "it ended by SIGKILL")}
    assert len([b for b in book.ablation.blocks if b.contestant.startswith("a/")]) == 5
    assert len([b for b in book.ablation.blocks if b.contestant.startswith("b/")]) == 8
    assert stage.running == set()


def test_a_server_that_does_not_start_ends_its_technique_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, refused="a/off")
    book = play(tmp_path, "a", "b")
    assert {c.name: c.outcome for c in book.ablation.contestants} == {
        "a/on": "measured", "a/off": "failed", "b/on": "measured", "b/off": "measured"}
    assert {turn[2][0] for turn in stage.turns} == {"b"}
    assert stage.running == set()


def test_an_interrupted_run_keeps_its_blocks_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, stopped_at=4)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "a")
    assert len(read(tmp_path / "ablation.json").blocks) == 3
    assert stage.running == set()
    book = play(tmp_path, "a")
    assert len(stage.turns) == 4 + 6  # the pair that was cut short is measured again as a whole
    assert len(book.ablation.blocks) == 8


def test_what_it_takes_is_reported_beforehand(tmp_path: Path) -> None:
    one, two = plan(technique(tmp_path), rounds=1), plan(technique(tmp_path), rounds=2)
    book = Book(tmp_path, empty("mock", one.settings()))
    assert 0 < seconds(one, book) < seconds(two, book) < 2 * seconds(one, book)
