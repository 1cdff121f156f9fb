"""The paired comparison: what it makes of noise that both sides share, and that its sides run."""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path

import pytest
from benchmarks.ab.__main__ import arguments, main, setting
from benchmarks.ab.pairs import BASE, NEW, WARM_UP, Ask, Launch, run_launch, summary
from benchmarks.ab.works import flag, parse, prompt
from benchmarks.peers.process import EngineError

from tests.cli import tiny


class Machine:
    """Turns on a machine that drifts by half, stalls at random, and favours each process by its own luck."""

    def __init__(self, seed: int) -> None:
        self.draw, self.time = random.Random(seed), 0

    def side(self, cost: float, luck: float = 0.002) -> Ask:
        own = cost * math.exp(self.draw.gauss(0, luck))

        def turn(number: int) -> tuple[float, str]:
            self.time += 1
            host = 1 + 0.5 * math.sin(self.time / 500) + (5 * (self.draw.random() < 0.03))
            return own * host * math.exp(self.draw.gauss(0, 0.05)), "same"
        return turn

    def launches(self, new: float) -> list[Launch]:
        return [run_launch({BASE: self.side(1.0), NEW: self.side(new)}, 300, lambda: None) for _ in range(10)]


def test_equal_sides_are_equal_within_a_percent() -> None:
    found = [summary(Machine(seed).launches(1.0)) for seed in range(20)]
    assert sum(f.low <= 1 <= f.high for f in found) >= 17  # 19 expected of 20
    assert all((f.high - f.low) / 2 < 0.01 for f in found)


def test_three_percent_are_detected() -> None:
    found = [summary(Machine(seed).launches(1.03)) for seed in range(20)]
    assert all(f.high < 0.99 for f in found)
    assert sum(f.low < 1 / 1.03 < f.high for f in found) >= 17


def test_sides_go_first_in_turn_and_see_the_same_numbers() -> None:
    calls: list[tuple[str, int]] = []

    def ask(name: str) -> Ask:
        return lambda number: (calls.append((name, number)) or 1.0, f"{name}{number}")

    launch = run_launch({BASE: ask(BASE), NEW: ask(NEW)}, 4, lambda: None)
    assert launch.unequal == 4 + WARM_UP
    assert len(launch.seconds[BASE]) == len(launch.seconds[NEW]) == 4
    firsts = [name for name, _ in calls[::2]]
    assert firsts[:4] in ([NEW, BASE, NEW, BASE], [BASE, NEW, BASE, NEW])
    assert [number for _, number in calls[::2]] == [number for _, number in calls[1::2]] == list(range(4 + WARM_UP))


def test_one_launch_is_no_interval() -> None:
    with pytest.raises(ValueError, match="two launches"):
        summary([Launch({BASE: [1.0], NEW: [1.0]})])
    with pytest.raises(SystemExit):
        arguments(["--launches", "1"])


def test_arguments() -> None:
    assert parse("decode@8") == ("decode", 8)
    for text in ("decode", "decode@0", "decode@x", "run@1"):
        with pytest.raises(ValueError, match="is not one of step@N"):
            parse(text)
    assert setting("overlap=off") == ("overlap", False)
    assert setting("kv_dtype=int8") == ("kv_dtype", "int8")
    for text in ("overlap", "speed=2"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=VALUE of a setting"):
            setting(text)
    assert flag("kv_dtype", "int8") == ["--kv-dtype", "int8"]
    assert flag("prefix_cache", False) == ["--no-prefix-cache"]
    assert prompt(3, 5) == prompt(3, 5) != prompt(4, 5)


@pytest.mark.serial
@pytest.mark.slow
def test_both_sides_run_each_kind_of_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(tiny.model())
    works = ["step@2", "decode@2", "prefill@40", "serve@2"]
    assert main(["--model", str(model), "--work", *works, "--base", "threads=1", "--new", "threads=1", "kv_dtype=fp32",
                 "--launches", "2", "--pairs", "3", "--at-least", "0.0001", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [f["work"] for f in found] == works
    for f in found:
        assert f["ratio"]["low"] <= f["ratio"]["value"] <= f["ratio"]["high"]
        assert [len(side) for launch in f["launches"] for side in launch.values()] == [3, 3, 3, 3]
    assert found[1]["unequal"] > 0  # of bf16 and fp32 KV


def test_a_model_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineError, match=r"ended in 'load'(?s:.)*nowhere"):
        main(["--model", "nowhere.gguf", "--launches", "2"])
